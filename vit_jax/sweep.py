"""Chooses the learning rate on held-out images, then trains on all of them.

Works with any run file. Trials hold out a part of the training images and choose
the best rate on it (Sec. B.1.1 of the paper); the final runs evaluate the test
images once for each seed. The same command continues an unfinished sweep; with other
settings it refuses the workdir. A failed trial does not stop the others.
"""

from collections.abc import Mapping
import statistics
from typing import Any

from absl import logging
import jax
import ml_collections

from vit_jax import runs
from vit_jax.configs import validate
from vit_jax.data import datasets
from vit_jax.data import sources
from vit_jax.data import splits
from vit_jax.evaluation import scores
from vit_jax.reporting import plot
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import storage
from vit_jax.runtime import workdir as workdir_lib

Trial = dict[str, Any]


def sweep(
  config: ml_collections.ConfigDict,
  workdir: str,
  train: runs.Trainer | None = None,
) -> dict[str, Any]:
  """Runs all trials and the final runs that are not finished yet.

  Args:
    config: settings with `sweep`, see `common.with_sweep`.
    workdir: folder for the workdirs of all runs, `sweep.json` and `sweep.png`.
    train: runs a config in a workdir; default: `train.train_and_evaluate`.

  Returns:
    The content of `sweep.json`: the metric, the trials, the best rate, the test by
    seed.

  Raises:
    errors.UserError: if a setting cannot work, splits have images in common, a
      workdir has a run of other settings, all trials fail, or a final run fails.
  """
  root, how = storage.as_path(workdir), config.sweep
  config = datasets.with_data(validate.validate(config))
  _refuse_overlaps(config)
  trials, finals = [], {}
  for rate in how.base_lr:
    name = f'base_lr={rate:g}'
    folder = workdir_lib.at(root / 'trials' / name)
    trials.append((_held_out(config, rate), folder))
    finals[rate] = {
      seed: (
        _with(config, base_lr=rate, seed=seed),
        workdir_lib.at(root / 'final' / name / f'seed={seed}'),
      )
      for seed in how.seeds
    }
  last = [final for seeds in finals.values() for final in seeds.values()]
  for one in [*trials, *last]:  # All workdirs before the first run.
    runs.check_same(*one)
  tried = [_trial(*trial, train) for trial in trials]
  ended = [trial for trial in tried if 'error' not in trial]
  if not ended:
    raise errors.UserError(
      f'None of {len(tried)} trials ended: {tried[0]["error"]}'
    )
  metric = config.best_metric
  best = max(
    ended, key=lambda x: scores.quality({metric: x[_name(metric)]}, metric)
  )['base_lr']
  logging.info('The best of %s is %g.', tuple(how.base_lr), best)
  tested = {
    seed: runs.run(*final, train)[metric]
    for seed, final in finals[best].items()
  }
  result = {
    'metric': _name(metric),
    'trials': tried,
    'best_base_lr': best,
    'test': tested,
  }
  if jax.process_index() == 0:
    _write(result, root)
    print(table(result))
  return result


def _write(result: Mapping[str, Any], root: storage.Path) -> None:
  name = result['metric']
  ended = [trial for trial in result['trials'] if name in trial]
  line = [trial['base_lr'] for trial in ended], [t[name] for t in ended]
  files.write_json(result, root / 'sweep.json')
  figure = plot.curves(
    {f'{name} on held-out images': {'': line}}, x='base_lr', log_x=True
  )
  plot.save(figure, root / 'sweep.png')


def table(result: Mapping[str, Any]) -> str:
  """Returns the result of a sweep as two Markdown tables."""
  name = result['metric']
  lines = [f'| base_lr | held-out {name} |', '| --- | --- |']
  for trial in result['trials']:
    value = trial.get('error') or f'{trial[name]:.4f}'
    lines.append(f'| {trial["base_lr"]:g} | {value} |')
  values = list(result['test'].values())
  spread = f' ± {statistics.stdev(values):.4f}' if len(values) > 1 else ''
  lines += [
    '',
    f'| best base_lr | test {name} | seeds |',
    '| --- | --- | --- |',
    f'| {result["best_base_lr"]:g} | {statistics.mean(values):.4f}{spread}'
    f' | {len(values)} |',
  ]
  rates = sorted(trial['base_lr'] for trial in result['trials'])
  if len(rates) > 1 and result['best_base_lr'] in (rates[0], rates[-1]):
    lines += [
      '',
      'The best base_lr is the last one tried: try rates beyond it.',
    ]
  return '\n'.join(lines)


def _name(metric: str) -> str:
  """Returns a metric without its split, for tables."""
  return metric.removesuffix('_test').replace('_', ' ')


def _with(
  config: ml_collections.ConfigDict, **settings: Any
) -> ml_collections.ConfigDict:
  config = runs.only_last_evaluated(runs.without_sweep(config)).unlock()
  for name, value in settings.items():
    config[name] = value
  return config.lock()


def held_out(config: ml_collections.ConfigDict) -> tuple[str, str]:
  """Returns the splits that trials of a sweep are trained and compared on.

  The default is to hold out the last tenth of `config.pp.train`.

  Raises:
    errors.UserError: if one of them is empty, or `config.pp.train` is not one
      range in percent.
  """
  train, holdout = config.sweep.train, config.sweep.holdout
  if train and holdout:
    return train, holdout
  name, start, end = splits.percents(config.pp.train) or ('', 0, 0)
  middle = end - max(1, round((end - start) / 10))
  if train or holdout or not start < middle < end <= 100:
    raise errors.UserError(
      f'config.sweep.train is {train!r} and holdout {holdout!r}, and'
      f' config.pp.train, {config.pp.train!r}, cannot be divided automatically:'
      f" give both, train='train[:90%]' holdout='train[90%:]'."
    )
  tail = f'{end}%' if end < 100 else ''
  head = f'{start}%' if start else ''
  return f'{name}[{head}:{middle}%]', f'{name}[{middle}%:{tail}]'


def _held_out(
  config: ml_collections.ConfigDict, rate: float
) -> ml_collections.ConfigDict:
  trial = _with(config, base_lr=rate).unlock()
  trial.pp.train, trial.pp.test = held_out(config)
  return trial.lock()


def _refuse_overlaps(config: ml_collections.ConfigDict) -> None:
  """Raises `errors.UserError` if splits have images in common, before any run.

  Besides the splits of a trial and those of a final run, the images that choose the
  rate must differ from the test images.
  """
  final = datasets.open_splits(_with(config))
  settings = {'train': 'train', 'test': 'holdout'}  # Their flags.
  trial = datasets.open_splits(_held_out(config, config.base_lr), settings)
  sources.refuse_overlap(
    {'holdout': held_out(config)[1], 'config.pp.test': config.pp.test},
    [trial.test.source, final.test.source],
  )


def _trial(
  config: ml_collections.ConfigDict,
  workdir: workdir_lib.Workdir,
  train: runs.Trainer | None,
) -> Trial:
  """Returns the rate of a trial and its metric, or its error."""
  try:
    value = runs.run(config, workdir, train)[config.best_metric]
    return {'base_lr': config.base_lr, _name(config.best_metric): value}
  except errors.UserError as e:
    logging.warning('The trial with base_lr=%g failed: %s', config.base_lr, e)
    return {'base_lr': config.base_lr, 'error': str(e)}
