"""Classifies images by labels in words, with a LiT, CLIP or SigLIP model.

vit-jax zero_shot --model=LiT-B16B --labels=cat,dog photo.jpg
vit-jax zero_shot --model=hf://openai/clip-vit-base-patch32 --labels=cat,dog photo.jpg
vit-jax zero_shot --model=/tmp/lit/artifact --labels=labels.txt photos/

Images are given as in `vit-jax predict`.
"""

from collections.abc import Sequence
import os

from absl import flags

from vit_jax import zero_shot
from vit_jax.commands import output
from vit_jax.commands import predictor_flags
from vit_jax.data import inputs
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import storage


def read_list(text_or_file: str) -> list[str]:
  """Returns the lines of a file, or the parts of a text between commas.

  Raises:
    errors.UserError: if a file, which ends in .txt, cannot be read.
  """
  if os.path.isfile(text_or_file) or text_or_file.endswith('.txt'):
    try:
      lines = files.read_lines(storage.local_path(text_or_file))
    except (OSError, UnicodeDecodeError) as e:
      raise errors.UserError(
        f'labels={text_or_file} cannot be read: {e}.'
      ) from e
  else:
    lines = text_or_file.split(',')
  return [line.strip() for line in lines if line.strip()]


def define_flags() -> None:
  """Defines the flags of `vit-jax zero_shot`."""
  output.define_flags()
  predictor_flags.define_image_flags()
  flags.DEFINE_string(
    'model',
    None,
    'Name, file, folder or address of a model of images and texts.',
  )
  flags.DEFINE_string(
    'labels', None, 'Labels separated by commas, or a file with one a line.'
  )
  flags.DEFINE_multi_string(
    'templates',
    zero_shot.TEMPLATES,
    'Text with {} for the label; may be repeated.',
  )
  flags.DEFINE_string(
    'vocabulary', '', 'Vocabulary file; by default that of the model.'
  )
  flags.DEFINE_string(
    'config_name',
    '',
    'Which released LiT an .npz file of another name is, such as lit_b16b.',
  )
  flags.DEFINE_string(
    'pretrained_dir', 'checkpoints', 'Folder of released models.'
  )
  flags.DEFINE_bool(
    'crop', False, 'Keep the aspect ratio and take the central square.'
  )
  flags.mark_flags_as_required(['model', 'labels'])


def main(argv: Sequence[str]) -> None:
  options, names = flags.FLAGS, inputs.find(argv[1:])
  weights = zero_shot.load(
    options.model,
    vocabulary=options.vocabulary,
    config_name=options.config_name,
    pretrained_dir=options.pretrained_dir,
  )
  predictions = zero_shot.classify(
    weights,
    names,
    read_list(options.labels),
    templates=options.templates,
    crop=options.crop,
    top_k=options.top_k,
    batch_size=options.batch,
    on_bad_image=options.on_bad_image,
  )
  output.show(predictions, names, as_json=options.json, as_csv=options.csv)
