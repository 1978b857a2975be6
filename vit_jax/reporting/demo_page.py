"""The page that classifies a dropped image and draws its attention, by gradio."""

import os
from typing import Any

import numpy as np

from vit_jax import predictor as predictor_lib
from vit_jax.reporting import attention_pictures
from vit_jax.runtime import errors
from vit_jax.weights import record as weights_lib


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
  """Returns the page, a `gradio.Blocks` that shows `top_k` classes.

  Raises:
    errors.UserError: if gradio is missing, or the model cannot predict or takes other
      images than pictures.
  """
  gradio = _import_gradio()
  channels = predictor.image_shape[-1]
  if channels not in (1, 3):
    raise errors.UserError(
      f'The page takes pictures of 1 or 3 channels, but the model has {channels}:'
      f' see vit-jax predict.'
    )
  # Compiles the model, and fails before the page is served.
  predictor.predict(np.zeros(predictor.image_shape, np.uint8))
  draws = predictor.weights.spec.num_heads > 0
  has_numbers = weights_lib.units(predictor.weights) is not None

  def answer(image: Any) -> tuple[Any, Any]:
    if image is None:
      return None, None
    try:
      [best] = predictor.predict(image, top_k=top_k)
      shown = best if has_numbers else dict(best)
      return shown, _drawn(predictor, image) if draws else None
    except errors.UserError as e:
      raise gradio.Error(str(e)) from e

  with gradio.Blocks(title=title) as blocks:
    gradio.Markdown(f'# {title}')
    with gradio.Row():
      image = gradio.Image(type='pil', label='Image')
      with gradio.Column():
        if has_numbers:
          classes = gradio.Dataframe(headers=['number', 'value'])
        else:
          classes = gradio.Label(num_top_classes=top_k, label='Classes')
        drawn = gradio.Image(
          label='Attention rollout',
          visible=draws,
          buttons=['download', 'fullscreen'],
        )
    image.change(answer, image, [classes, drawn], api_name='predict')
  return blocks


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
