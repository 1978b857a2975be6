"""Says what a data set has before it is trained on: counts, sizes, faults, copies.

vit-jax data photos/
vit-jax data photos/ --sheet=sheet.png --json

It decodes every image. The data set is anything that config.dataset accepts.
Copies are equal files, and images that were rescaled or saved again; a copy of
a training image among the test images makes a model look better than it is. Mean and
standard deviation are those of pixels from 0 to 1, for config.pp.mean and config.pp.std.
"""

from collections.abc import Sequence
import dataclasses
import json
import pathlib
import sys

from absl import flags

from vit_jax.commands import dataset_flags
from vit_jax.configs import common
from vit_jax.configs import labels as labels_lib
from vit_jax.data import image_files
from vit_jax.data import label_texts
from vit_jax.data import sources
from vit_jax.data import survey
from vit_jax.data.rows import row_weights
from vit_jax.data.rows import table_files
from vit_jax.reporting import contact_sheet
from vit_jax.runtime import errors
from vit_jax.runtime import files

_MOST_NAMED = 5  # Broken files, and copies, that are named.


def define_flags() -> None:
  """Defines the flags of `vit-jax data`."""
  flags.DEFINE_string('train_split', None, 'Split to train on.')
  flags.DEFINE_string('split', None, 'Split to test.')
  dataset_flags.define_flags()
  flags.DEFINE_string(
    'weight_column',
    table_files.DEFAULT.weight,
    "A table's column with weights of images in the training loss.",
  )
  flags.DEFINE_enum(
    'task',
    '',
    ['', *labels_lib.TASKS],
    'What images are labelled with; by default what the columns tell.',
  )
  flags.DEFINE_bool('json', False, 'Print JSON.')
  flags.DEFINE_string('sheet', None, 'PNG file for images of every class.')


def main(argv: Sequence[str]) -> None:
  options = flags.FLAGS
  if len(argv) != 2:
    raise errors.UserError('Name one data set: vit-jax data FOLDER_OR_NAME')
  sheet = options.sheet  # Checked before anything takes long.
  path = files.output_path(sheet, ('.png',), 'sheet') if sheet else None
  dataset = argv[1]
  config = common.with_dataset(common.get_config(), dataset)
  found = survey.of_dataset(
    dataset,
    options.train_split or config.pp.train,
    options.split or config.pp.test,
    data_dir=options.tfds_data_dir,
    columns=_columns(),
  )
  if options.json:
    print(json.dumps(found, indent=2, ensure_ascii=False))
  else:
    print('\n'.join(describe(dataset, found)))
  if path:
    _draw(dataset, found['splits']['train']['split'], path)


def _columns() -> table_files.Columns:
  options = flags.FLAGS
  return dataclasses.replace(
    dataset_flags.columns(), weight=options.weight_column, task=options.task
  )


def describe(dataset: str, found: dict) -> list[str]:
  """Returns the lines that the command prints."""
  splits = found['splits']
  by = splits['train']['split_by']
  lines = [dataset + (f', split by {by}' if by else '')]
  for role, facts in splits.items():
    lines += ['', f'{role} ({facts["split"]}): {facts["images"]:,} images']
    lines += _of_split(facts)
  count = found['copies']['images']
  lines += ['', f'Copies of training images among the test images: {count}']
  lines += _examples(found['copies'])
  return lines


def _of_split(facts: dict) -> list[str]:
  rows, number = {}, label_texts.number
  if facts['classes']:
    counts = sorted(facts['classes'].items(), key=lambda row: -row[1])
    rows['classes'] = ', '.join(f'{name} {n:,}' for name, n in counts)
  for name, x in (facts['numbers'] or {}).items():
    rows[name] = (
      f'{number(x["lowest"])} to {number(x["highest"])} {x.get("unit", "")},'
      f' mean {number(x["mean"])}, standard deviation {number(x["std"])}'
    )
  if facts['weights']:
    rows['weights'] = row_weights.text(facts['weights'])
  if 'mean' in facts:
    (h0, h, h1), (w0, w, w1) = facts['heights'], facts['widths']
    rows['pixels'] = f'{h} x {w} (median), {h0} to {h1} x {w0} to {w1}'
    rows['formats'] = ', '.join(
      f'{n:,} {k}' for k, n in facts['formats'].items()
    )
    rows['modes'] = ', '.join(f'{n:,} {k}' for k, n in facts['modes'].items())
    rows['mean'] = ','.join(f'{x:g}' for x in facts['mean'])
    rows['std'] = ','.join(f'{x:g}' for x in facts['std'])
  if facts['unread']:
    rows['not read'] = image_files.count_text(facts['unread'])
  rows['broken'] = str(len(facts['broken']))
  rows['copies'] = str(facts['copies']['images'])
  width = max(8, *map(len, rows))
  lines = [f'  {name:{width}} {text}' for name, text in rows.items()]
  broken = [f'    {x["name"]}: {x["reason"]}' for x in facts['broken']]
  return lines + broken[:_MOST_NAMED] + _examples(facts['copies'])


def _examples(found: dict) -> list[str]:
  pairs = found['pairs'][:_MOST_NAMED]
  return [f'    {first} and {second}' for first, second in pairs]


def _draw(dataset: str, split: str, path: pathlib.Path) -> None:
  source = sources.get_source(
    dataset,
    split,
    data_dir=flags.FLAGS.tfds_data_dir,
    columns=_columns(),
  )
  sheet = contact_sheet.of_classes(source)
  contact_sheet.write(sheet, path, 'sheet')
  total, most = len(source.class_names), contact_sheet.MOST_IMAGES
  which = 'every class' if total <= most else f'{most} of {total} classes'
  text = f'Images of {which} are in {path}.'
  print(text, file=sys.stderr)  # The JSON is on standard output.
