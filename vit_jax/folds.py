"""Cross-validation: each part of the images is tested once, by a model of the others.

The parts, folds, are slices of `config.pp.train`, whose order depends on the images
alone. The same command resumes a stopped one; with other settings it refuses the
workdir.
"""

from collections.abc import Mapping, Sequence
import itertools
import statistics
from typing import Any

from absl import logging
import jax
import ml_collections

from vit_jax import runs
from vit_jax.configs import labels
from vit_jax.data import datasets
from vit_jax.data import splits as split_lib
from vit_jax.evaluation import scores
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import storage
from vit_jax.runtime import workdir as workdir_lib

Result = dict[str, Any]


def splits(train: str, count: int) -> list[tuple[str, str]]:
  """Returns the splits to train on and to test of each fold.

  >>> splits('train', 2)
  [('train[50%:100%]', 'train[0%:50%]'), ('train[0%:50%]', 'train[50%:100%]')]

  Raises:
    errors.UserError: if `train` is not one range in percent, or too short.
  """
  if (part := split_lib.percents(train)) is None:
    raise errors.UserError(
      f'config.pp.train is {train!r}, which cannot be divided into folds: it must'
      f" be one range in percent, such as 'train' or 'train[:90%]'."
    )
  name, start, end = part
  ends = [start + round((end - start) * i / count) for i in range(count + 1)]
  if count < 2 or len(set(ends)) <= count:
    raise errors.UserError(
      f'folds={count} of {end - start} % of the images: there must be at least 2,'
      f' each of at least 1 %.'
    )
  found = []
  for first, last in itertools.pairwise(ends):
    rest = [(start, first), (last, end)]
    others = [f'{name}[{a}%:{b}%]' for a, b in rest if a < b]
    found.append(('+'.join(others), f'{name}[{first}%:{last}%]'))
  return found


def cross_validate(
  config: ml_collections.ConfigDict,
  workdir: str,
  count: int,
  train: runs.Trainer | None = None,
) -> Result:
  """Runs the folds that are not finished yet.

  Args:
    config: settings; `pp.test` is not used.
    workdir: folder for the workdirs of all folds and `folds.json`.
    count: number of folds.
    train: runs a config in a workdir; default: `train.train_and_evaluate`.

  Returns:
    The content of `folds.json`: the metrics of each fold, mean and standard deviation
    of each metric.

  Raises:
    errors.UserError: if the images cannot be divided, `pp.holdout` has some of
      them, or a run fails.
  """
  root, planned = storage.as_path(workdir), []
  config = runs.without_sweep(config)
  for number, (others, own) in enumerate(splits(config.pp.train, count), 1):
    fold = config.copy_and_resolve_references().unlock()
    fold.pp.train, fold.pp.test = others, own
    fold = runs.only_last_evaluated(datasets.with_data(fold))
    planned.append((fold, workdir_lib.at(root / f'fold={number}')))
  if config.pp.holdout:
    _refuse_overlap(config)
  for run in planned:  # All workdirs before the first run.
    runs.check_same(*run)
  rows = []
  for fold, folder in planned:
    rows.append(runs.run(fold, folder, train))
    logging.info('%s: %s', folder, rows[-1])
  result = {'folds': rows, **_summary(rows)}
  if jax.process_index() == 0:
    files.write_json(result, root / 'folds.json')
    print(table(result))
  return result


def _refuse_overlap(config: ml_collections.ConfigDict) -> None:
  """Raises `errors.UserError` if `pp.holdout` has images of the folds."""
  whole = config.copy_and_resolve_references().unlock()
  whole.pp.test = whole.pp.train
  whole.eval_every, whole.eval_every_epochs = 0, None  # They may be the same.
  datasets.open_splits(datasets.with_data(whole))


def _summary(
  rows: Sequence[Mapping[str, float]],
) -> dict[str, dict[str, float]]:
  names = [n for n in rows[0] if n not in (scores.EXAMPLES, scores.SKIPPED)]
  by_name = {name: [row[name] for row in rows] for name in names}
  return {
    'mean': {name: statistics.mean(x) for name, x in by_name.items()},
    'deviation': {name: statistics.stdev(x) for name, x in by_name.items()},
  }


def table(result: Mapping[str, Any]) -> str:
  """Returns mean and standard deviation of each metric as a Markdown table."""
  count = len(result['folds'])
  known = {name for names in labels.METRICS.values() for name in names}
  lines = [f'| metric | mean of {count} folds | standard deviation |']
  lines.append('| --- | --- | --- |')
  for name, mean in result['mean'].items():
    if name.removesuffix(scores.AVERAGED) in known:
      lines.append(f'| {name} | {mean:.4f} | {result["deviation"][name]:.4f} |')
  return '\n'.join(lines)
