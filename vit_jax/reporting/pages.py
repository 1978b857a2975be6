"""Fills the templates of this package."""

from typing import Any


def render(template: str, **values: Any) -> str:
  """Returns the text of a template; in pages, values are escaped."""
  import jinja2  # Imported late: only pages need it.

  environment = jinja2.Environment(
    loader=jinja2.PackageLoader('vit_jax.reporting', ''),
    autoescape=template.endswith('.html.jinja'),
    trim_blocks=True,
    lstrip_blocks=True,
  )
  return environment.get_template(template).render(values)
