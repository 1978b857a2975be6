"""Fills the templates of this package."""

from typing import Any

from vit_jax.data import label_texts


def render(template: str, **values: Any) -> str:
  r"""Returns the text of a template; in pages, values are escaped.

  Bytes of file names that are not UTF-8 become text such as `\xe9`.
  """
  import jinja2  # Imported late: only pages need it.

  environment = jinja2.Environment(
    loader=jinja2.PackageLoader('vit_jax.reporting', ''),
    autoescape=template.endswith('.html.jinja'),
    trim_blocks=True,
    lstrip_blocks=True,
  )
  environment.filters['number'] = label_texts.number
  text = environment.get_template(template).render(values)
  return text.encode('utf-8', 'surrogateescape').decode(
    'utf-8', 'backslashreplace'
  )
