"""Serves a page to drop an image on: classes, probabilities and attention.

vit-jax demo --model=/tmp/run/artifact

Needs pip install 'vit_jax[demo]'. Only this machine sees it, at 127.0.0.1, unless
--host says otherwise; images may have 10 MB, unless --max_mb does.
"""

from collections.abc import Sequence
import os
from typing import Any

from absl import flags
import numpy as np

from vit_jax import predictor as predictor_lib
from vit_jax.commands import predictor_flags
from vit_jax.reporting import attention_pictures
from vit_jax.runtime import errors


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
  """Returns the page, a `gradio.Blocks`.

  Args:
    predictor: the model.
    title: above all.
    top_k: how many classes are shown.

  Raises:
    errors.UserError: if gradio is missing, or the model cannot predict.
  """
  gradio = _import_gradio()
  predictor.predict(_black(predictor))  # Compiles, and fails now if ever.
  draws = predictor.weights.spec.num_heads > 0

  def answer(image: Any) -> tuple[dict[str, float], Any]:
    if image is None:
      return {}, None
    try:
      [best] = predictor.predict(image, top_k=top_k)
      return dict(best), _drawn(predictor, image) if draws else None
    except errors.UserError as e:
      raise gradio.Error(str(e)) from e

  with gradio.Blocks(title=title) as blocks:
    gradio.Markdown(f'# {title}')
    with gradio.Row():
      image = gradio.Image(type='pil', label='Image')
      with gradio.Column():
        classes = gradio.Label(num_top_classes=top_k, label='Classes')
        drawn = gradio.Image(
          label='Attention rollout',
          visible=draws,
          buttons=['download', 'fullscreen'],
        )
    image.change(answer, image, [classes, drawn], api_name='predict')
  return blocks


def _black(predictor: predictor_lib.Predictor) -> np.ndarray:
  return np.zeros(predictor.weights.image_shape, np.uint8)


def _drawn(predictor: predictor_lib.Predictor, image: Any) -> np.ndarray:
  [(_, pixels)] = predictor.prepared(image)
  [values] = predictor.rollout(image)
  drawn = attention_pictures.on_image(
    attention_pictures.as_picture(pixels), values
  )
  return np.round(drawn * 255).astype(np.uint8)


def serve(
  blocks: Any, *, host: str, port: int | None, max_mb: int, block: bool = True
) -> str:
  """Serves a page until it is interrupted; returns its address.

  Args:
    blocks: of `page`.
    host: address to listen at.
    port: None takes a free one, from 7860 on.
    max_mb: largest file that is taken.
    block: whether to wait for the interruption.

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
    raise errors.UserError(f'--host={host} --port={port}: {e}') from e
  print(f'The page is at {url}', flush=True)
  if block:
    blocks.block_thread()
  return url


def define_flags() -> None:
  """Defines the flags of `vit-jax demo`."""
  predictor_flags.define_flags()
  flags.DEFINE_integer('top_k', 5, 'Classes shown.', lower_bound=1)
  flags.DEFINE_string('host', '127.0.0.1', 'Address to listen at.')
  flags.DEFINE_integer('port', None, 'By default a free one, from 7860 on.')
  flags.DEFINE_integer('max_mb', 10, 'Size of an image.', lower_bound=1)


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise errors.UserError(f'{argv[1]}: only flags are taken.')
  options = flags.FLAGS
  blocks = page(predictor_flags.from_flags(), options.model, options.top_k)
  serve(blocks, host=options.host, port=options.port, max_mb=options.max_mb)
