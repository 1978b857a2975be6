"""Evaluates the model of a recorded result again and compares the metrics.

python -m tools.check_result results/cifar10_scratch --dataset=/path/to/cifar10

Exits with 1 if the accuracy differs by more than half a percent. Small differences
come from weights in float16, and from the precision of matrix products.
"""

from collections.abc import Sequence
import pathlib
from typing import Any

from absl import flags
import ml_collections

from tools import record_result
from vit_jax.commands import cli
from vit_jax.data import batching
from vit_jax.data import class_names
from vit_jax.evaluation import evaluator
from vit_jax.evaluation import scores
from vit_jax.models import losses
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import sharding
from vit_jax.runtime import storage
from vit_jax.runtime import workdir
from vit_jax.weights import formats
from vit_jax.weights import record as weights_lib
from vit_jax.weights import training_run

_TOLERANCE = 0.005
_COMPARED = (scores.ACCURACY, scores.TOP5, scores.LOSS, scores.EXAMPLES)


def check(folder: pathlib.Path, dataset: str | None) -> str:
  """Returns a Markdown table of recorded and measured metrics.

  Args:
    folder: a folder that `record_result` wrote.
    dataset: folder or name of the images; None for the recorded name.

  Raises:
    errors.UserError: if the folder lacks a file, or the accuracy differs.
  """
  result = files.read_json(folder / record_result.RESULT)
  if not result or not workdir.at(folder).config.is_file():
    raise errors.UserError(
      f'{folder} is not a result: {record_result.RESULT} or config.json is missing.'
      f' See python -m tools.record_result.'
    )
  if not result['model']:
    raise errors.UserError(
      f'{folder} was recorded without its model. {result["command"]} trains it.'
    )
  config = training_run.saved_settings(workdir.at(folder))
  config.dataset = dataset or config.dataset
  weights = formats.read((folder / result['model']).resolve())
  try:
    now = _evaluate(config, weights)
  except errors.UserError as e:
    hint = '' if dataset else ' Name the folder of the images with --dataset.'
    raise errors.UserError(f'{e}{hint}') from e
  rows = ['| metric | recorded | now |', '| --- | --- | --- |']
  for name in _COMPARED:
    rows.append(f'| {name} | {result["metrics"][name]:.6g} | {now[name]:.6g} |')
  table = '\n'.join(rows)
  old, new = (x[scores.ACCURACY] for x in (result['metrics'], now))
  if abs(old - new) > _TOLERANCE:
    raise errors.UserError(
      f'{folder} has an accuracy of {old:.2%} on {result["dataset"]}, but'
      f' {config.dataset} gives {new:.2%}. Are the images the same?\n{table}'
    )
  return table


def _evaluate(
  config: ml_collections.ConfigDict, weights: weights_lib.Weights
) -> dict[str, Any]:
  data, mesh = batching.of_config(config), sharding.make_mesh()
  names = list(weights.class_names)
  nameless = names == weights_lib.numbered_classes(weights.params)  # An .npz.
  mine, theirs = class_names.comparable(names, data.class_names)
  if len(theirs) != len(mine) or (theirs != mine and not nameless):
    raise errors.UserError(
      f'{config.dataset} has the classes {", ".join(data.class_names[:3])} ...,'
      f' the model {", ".join(names[:3])} ...'
    )
  eval_fn = evaluator.make_eval_fn(
    weights.module(),
    data,
    mesh,
    loss=losses.LOSSES[config.loss],
    batch_size=config.batch_eval,
  )
  return eval_fn(weights.params)


def main(argv: Sequence[str]) -> None:
  if len(argv) != 2:
    raise errors.UserError('Give one folder, such as results/cifar10_scratch.')
  print(check(storage.local_path(argv[1]), flags.FLAGS.dataset))


if __name__ == '__main__':
  flags.DEFINE_string('dataset', None, 'Folder or name of the images.')
  cli.run(main)
