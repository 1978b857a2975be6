"""The flags of commands without a run file that stand for settings.

Messages name settings, such as `config.columns.label=NAME`; `vit-jax data` takes
`--label_column=NAME`.
"""

import re

from absl import flags

_COLUMNS = ('image', 'label', 'labels', 'target', 'split', 'weight')

# Flags by the setting that they stand for.
FLAGS = {
  **{f'config.columns.{name}': f'{name}_column' for name in _COLUMNS},
  'config.columns.separator': 'separator',
  'config.dataset': 'dataset',
  'config.pp.crop': 'image_size',
  'config.pp.test': 'split',
  'config.pp.train': 'train_split',
  'config.pretrained_dir': 'pretrained_dir',
  'config.task': 'task',
  'config.tfds_data_dir': 'tfds_data_dir',
  'config.vocabulary': 'vocabulary',
}


def named(message: str) -> str:
  """Returns a message with the settings that this command has flags for as flags."""
  known = flags.FLAGS
  if 'config' in known:
    return message

  def flag(match: re.Match[str]) -> str:
    name = FLAGS.get(match[0], '')
    return f'--{name}' if name in known else match[0]

  return re.sub(r'\bconfig(\.[a-z]\w*)+', flag, message)
