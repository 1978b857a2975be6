"""The page that classifies a dropped image and draws its attention, by gradio."""

import os
from typing import Any

import numpy as np

from vit_jax import predictor as predictor_lib
from vit_jax.configs import labels as labels_lib
from vit_jax.data import label_texts
from vit_jax.evaluation import multilabel
from vit_jax.evaluation import ranking
from vit_jax.reporting import attention_pictures
from vit_jax.reporting import colours
from vit_jax.runtime import errors
from vit_jax.weights import record as weights_lib

_STACKS = ('.npy', '.tif', '.tiff')


def _import_gradio() -> Any:
  # It would report to its authors that it is used.
  os.environ.setdefault('GRADIO_ANALYTICS_ENABLED', 'False')
  try:
    import gradio
  except ImportError as e:
    raise errors.UserError(
      "The page needs gradio: pip install 'vit_jax[demo]'."
    ) from e
  return gradio


def page(predictor: predictor_lib.Predictor, title: str, top_k: int = 5) -> Any:
  """Returns the page, a `gradio.Blocks` that shows `top_k` classes or all numbers.

  Raises:
    errors.UserError: if gradio is missing, or the model cannot predict.
  """
  gradio = _import_gradio()
  channels = predictor.image_shape[-1]
  # Compiles the model, and fails before the page is served.
  predictor.predict(np.zeros(predictor.image_shape, np.uint8))
  draws = predictor.weights.spec.num_heads > 0
  headers = _headers(predictor.weights)

  def answer(image: Any) -> tuple[Any, Any]:
    if image is None:
      return None, None
    try:
      [(_, row)] = predictor.probabilities(image)
      shown = _shown(row, predictor.weights, top_k)
      return shown, _drawn(predictor, image) if draws else None
    except errors.UserError as e:
      raise gradio.Error(str(e)) from e

  with gradio.Blocks(title=title) as blocks:
    gradio.Markdown(f'# {title}\n\n{colours.note(channels)}')
    with gradio.Row():
      image = _input(gradio, channels)
      with gradio.Column():
        if headers:
          found = gradio.Dataframe(headers=headers, interactive=False)
        else:
          found = gradio.Label(num_top_classes=top_k, label='Classes')
        drawn = gradio.Image(
          label='Attention rollout',
          visible=draws,
          buttons=['download', 'fullscreen'],
        )
    image.change(answer, image, [found, drawn], api_name='predict')
  return blocks


def _input(gradio: Any, channels: int) -> Any:
  """Returns what takes an image: a picture, or the file of a stack."""
  if channels in (1, 3):
    return gradio.Image(type='pil', label='Image')
  label = f'.npy file or TIFF of {channels} channels'
  return gradio.File(type='filepath', file_types=[*_STACKS], label=label)


def _headers(weights: weights_lib.Weights) -> list[str]:
  """Returns the headers of a table of predictions; none for one class an image."""
  if weights.task == labels_lib.REGRESSION:
    return ['number', 'value', *(['unit'] if weights.units else [])]
  if weights.task == labels_lib.MULTILABEL:
    return ['class', 'probability', 'threshold', 'present']
  return []


def _shown(
  row: np.ndarray, weights: weights_lib.Weights, top_k: int
) -> dict[str, float] | list[list[str]]:
  """Returns what the page shows: probabilities of classes, or rows of a table.

  Where an image may have several classes, these are the `top_k` most probable ones
  and all that reach their threshold.
  """
  if units := weights_lib.units(weights):
    rows = zip(units, row.tolist(), units.values(), strict=True)
    count = len(_headers(weights))
    return [
      [name, label_texts.number(x), unit][:count] for name, x, unit in rows
    ]
  chosen = ranking.choose(row, weights, top_k)
  if weights.task == labels_lib.MULTICLASS:
    return dict(chosen)
  names, present = weights.class_names, dict(chosen)
  limits = dict(zip(names, multilabel.thresholds(weights), strict=True))
  return [
    [
      name,
      f'{p:.1%}',
      f'{limits[name]:.1%}',
      'yes' if name in present else 'no',
    ]
    for rank, (name, p) in enumerate(ranking.best(row, names, len(names)))
    if rank < top_k or name in present
  ]


def _drawn(predictor: predictor_lib.Predictor, image: Any) -> np.ndarray:
  [(_, pixels)] = predictor.prepared(image)
  [values] = predictor.rollout(image)
  picture = attention_pictures.as_picture(pixels)
  drawn = attention_pictures.on_image(picture, values)
  return np.round(drawn * 255).astype(np.uint8)


def serve(
  blocks: Any, *, host: str, port: int | None, max_mb: int, block: bool = True
) -> str:
  """Serves the page, prints its address and returns it, at once unless `block`.

  The `port` None is the first free one from 7860. Files larger than `max_mb` are
  refused.

  Raises:
    errors.UserError: if the port is taken.
  """
  gradio = _import_gradio()
  theme = gradio.themes.Default(font='sans-serif', font_mono='monospace')
  try:
    _, url, _ = blocks.launch(
      server_name=host,
      server_port=port,
      max_file_size=f'{max_mb}mb',
      share=False,
      theme=theme,
      prevent_thread_lock=True,
      quiet=True,
    )
  except OSError as e:
    raise errors.UserError(f'host={host} port={port}: {e}') from e
  print(f'The page is at {url}', flush=True)
  if block:
    blocks.block_thread()
  return url
