"""The page of the images that a model is least sure about."""

from collections.abc import Mapping, Sequence

from vit_jax import predictor as predictor_lib
from vit_jax.configs import labels as labels_lib
from vit_jax.evaluation import ranking
from vit_jax.reporting import colours
from vit_jax.reporting import gallery
from vit_jax.reporting import pages
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import storage
from vit_jax.weights import record as weights_lib

_SUFFIX = '.html'
_MOST_IMAGES = 48

_ORDERS: Mapping[str, str] = {
  labels_lib.MULTICLASS: (
    'They are ordered by the difference between the two largest probabilities.'
  ),
  labels_lib.MULTILABEL: (
    'They are ordered by the smallest difference between a probability and its'
    ' threshold.'
  ),
}


def check(path: str) -> None:
  """Raises `errors.UserError` unless a file is named as a page."""
  files.output_path(path, (_SUFFIX,), 'html')


def write(
  path: str,
  rows: Sequence[ranking.Row],
  names: Sequence[str],
  weights: weights_lib.Weights,
  drawn_by: predictor_lib.Predictor,
  skipped: Mapping[str, str],
) -> int:
  """Writes the page; returns how many images it shows.

  Args:
    path: file of the page.
    rows: index and probabilities of each decoded image, the least sure first.
    names: names of all images.
    weights: the model, which says what its outputs mean.
    drawn_by: the model whose pixels and attention are drawn.
    skipped: why images were skipped, by their names.

  Raises:
    errors.UserError: if the page cannot be written.
  """
  chosen = rows[:_MOST_IMAGES]
  shown = [names[place] for place, _ in chosen]
  captions = [
    f'{name}: {gallery.unsure(row, weights)}'
    for name, (_, row) in zip(shown, chosen, strict=True)
  ]
  text = pages.render(
    'predictions.html.jinja',
    title=f'Least sure predictions of {weights.source}',
    count=len(rows),
    order=_ORDERS[weights.task],
    examples={'Least sure': gallery.pictures(drawn_by, shown, captions)},
    colours=colours.note(drawn_by.image_shape[-1]),
    skipped=sorted(skipped.items()),
  )
  with errors.writing(f'html={path}'):
    page = storage.local_path(path)
    page.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(text, page)
  return len(shown)
