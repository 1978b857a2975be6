"""Chooses the learning rate on held-out images, then trains on all of them.

Any run file can be swept. As the paper does (Sec. B.1.1), each rate is tried
without a part of the training images, on which the best one is chosen; the test
images are looked at once for each seed, at the end. The same command runs only
what is not finished; with other settings it refuses the workdir. A trial that
fails does not stop the others.
"""

from collections.abc import Callable, Mapping
import re
import statistics
from typing import Any

from absl import logging
import jax
import ml_collections

from vit_jax import train as train_lib
from vit_jax.configs import spec
from vit_jax.reporting import plot
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import hosts
from vit_jax.runtime import sharding
from vit_jax.runtime import storage
from vit_jax.runtime import workdir as workdir_lib
from vit_jax.training import resolve
from vit_jax.training import resume
from vit_jax.training import start
from vit_jax.training import state as state_lib
from vit_jax.weights import artifact

Trainer = Callable[[ml_collections.ConfigDict, str], Any]
Trial = dict[str, Any]

_AT_THE_END = 2**62  # More steps than any run has: the last one is evaluated.

_PERCENT = re.compile(r'(\w+)(?:\[(?:(\d+)%)?:(?:(\d+)%)?\])?')

# Settings that change speed and what is logged, but not what is learned.
_MAY_CHANGE = (
  'checkpoint_every',
  'checkpoint_every_epochs',
  'keep_checkpoints',
  'loggers',
  'mesh',
  'num_threads',
  'num_workers',
  'prefetch',
  'pretrained_dir',
  'profile_steps',
  'progress_every',
  'report',
  'tfds_data_dir',
)


def sweep(
  config: ml_collections.ConfigDict,
  workdir: str,
  train: Trainer | None = None,
) -> dict[str, Any]:
  """Runs all trials and the final runs that are not finished yet.

  Args:
    config: with `sweep`, see `common.with_sweep`.
    workdir: folder for a workdir of each run, `sweep.json` and `sweep.png`.
    train: runs a config in a workdir; None: `train.train_and_evaluate`.

  Returns:
    The content of `sweep.json`: the trials, the best rate, accuracies by seed.

  Raises:
    errors.UserError: if a run of other settings is in the workdir, no trial
      ended, or a final run fails.
  """
  root, how = storage.as_path(workdir), config.sweep
  train = train or train_lib.train_and_evaluate
  trials = {
    root / 'trials' / f'base_lr={rate:g}': _held_out(config, rate)
    for rate in how.base_lr
  }
  if len(trials) < len(how.base_lr):  # By six digits, as folders are named.
    raise errors.UserError(
      f'config.sweep.base_lr is {how.base_lr}, which has a value twice.'
    )
  finals = {
    rate: {
      seed: root / 'final' / f'base_lr={rate:g}' / f'seed={seed}'
      for seed in how.seeds
    }
    for rate in how.base_lr
  }
  # All of them before any is run: what is refused is refused at once.
  for path, trial in trials.items():
    _check_same(trial, path)
  for rate, paths in finals.items():
    for seed, path in paths.items():
      _check_same(_with(config, base_lr=rate, seed=seed), path)
  tried = [_trial(trial, path, train) for path, trial in trials.items()]
  ended = [trial for trial in tried if 'accuracy' in trial]
  if not ended:
    raise errors.UserError(
      f'None of {len(tried)} trials ended: {tried[0]["error"]}'
    )
  best = max(ended, key=lambda trial: trial['accuracy'])['base_lr']
  logging.info('The best of %s is %g.', tuple(how.base_lr), best)
  accuracies = {
    seed: _run(_with(config, base_lr=best, seed=seed), path, train)
    for seed, path in finals[best].items()
  }
  result = {'trials': tried, 'best_base_lr': best, 'test': accuracies}
  if jax.process_index() == 0:
    _write(result, root)
    print(table(result))
  return result


def _write(result: Mapping[str, Any], root: storage.Path) -> None:
  ended = [trial for trial in result['trials'] if 'accuracy' in trial]
  line = [trial['base_lr'] for trial in ended], [t['accuracy'] for t in ended]
  files.write_json(result, root / 'sweep.json')
  figure = plot.curves(
    {'accuracy on held-out images': {'': line}}, x='base_lr', log_x=True
  )
  plot.save(figure, root / 'sweep.png')


def table(result: Mapping[str, Any]) -> str:
  """Returns the result of a sweep as two Markdown tables."""
  lines = ['| base_lr | held-out accuracy |', '| --- | --- |']
  for trial in result['trials']:
    value = trial.get('error') or f'{trial["accuracy"]:.4f}'
    lines.append(f'| {trial["base_lr"]:g} | {value} |')
  values = list(result['test'].values())
  spread = statistics.stdev(values) if len(values) > 1 else 0.0
  lines += [
    '',
    '| best base_lr | test accuracy | seeds |',
    '| --- | --- | --- |',
    f'| {result["best_base_lr"]:g} | {statistics.mean(values):.4f} ±'
    f' {spread:.4f} | {len(values)} |',
  ]
  rates = sorted(trial['base_lr'] for trial in result['trials'])
  if len(rates) > 1 and result['best_base_lr'] in (rates[0], rates[-1]):
    lines += [
      '',
      'The best base_lr is the last of those tried: try further ones.',
    ]
  return '\n'.join(lines)


def _with(
  config: ml_collections.ConfigDict, **settings: Any
) -> ml_collections.ConfigDict:
  config = config.copy_and_resolve_references().unlock()
  config.trainer = (
    'contrastive' if spec.has_texts(config.get('model')) else 'train'
  )
  del config['sweep']
  config.eval_every, config.eval_every_epochs = _AT_THE_END, None
  for name, value in settings.items():
    config[name] = value
  return config.lock()


def held_out(config: ml_collections.ConfigDict) -> tuple[str, str]:
  """Returns the splits that a sweep trains trials on and compares them on.

  The splits of `config.sweep`; if both are empty, all but the last tenth of
  `config.pp.train`, and that tenth.

  Raises:
    errors.UserError: if one of them is empty, or `config.pp.train` is not one
      range in percent.
  """
  train, holdout = config.sweep.train, config.sweep.holdout
  if train and holdout:
    return train, holdout
  part = _PERCENT.fullmatch(config.pp.train)
  start, end = (int(part[2] or 0), int(part[3] or 100)) if part else (0, 0)
  middle = end - max(1, round((end - start) / 10))
  if train or holdout or not start < middle < end <= 100:
    raise errors.UserError(
      f'config.sweep.train is {train!r} and holdout {holdout!r}, and'
      f' config.pp.train, {config.pp.train!r}, cannot be divided automatically:'
      f" give both, train='train[:90%]' holdout='train[90%:]'."
    )
  tail = f'{end}%' if end < 100 else ''
  head = f'{start}%' if start else ''
  return f'{part[1]}[{head}:{middle}%]', f'{part[1]}[{middle}%:{tail}]'


def _held_out(
  config: ml_collections.ConfigDict, rate: float
) -> ml_collections.ConfigDict:
  trial = _with(config, base_lr=rate).unlock()
  trial.pp.train, trial.pp.test = held_out(config)
  return trial.lock()


def _check_same(
  config: ml_collections.ConfigDict, workdir: storage.Path
) -> None:
  """Raises `errors.UserError` if a run of other settings or data is there."""
  run = workdir_lib.at(workdir)
  saved = files.read_json(run.config)
  if not saved:
    return
  mesh = sharding.make_mesh(**config.mesh)
  filled = resolve.fill(config, run, mesh, resumed=True)
  asked = start.plain(filled.config)
  changed = resume.changed(
    {k: v for k, v in saved.items() if k not in _MAY_CHANGE},
    {k: v for k, v in asked.items() if k not in _MAY_CHANGE},
  )
  if changed:
    raise errors.UserError(
      f'{workdir} has a run of other settings: {", ".join(changed)}. Give'
      f' another workdir, or delete that folder to run it again.'
    )
  splits = {
    'config.pp.train': filled.splits.train.source,
    'config.pp.test': filled.splits.test.source,
  }
  resume.check_data(run, splits, resumed=True)


def _trial(
  config: ml_collections.ConfigDict, workdir: storage.Path, train: Trainer
) -> Trial:
  """Returns the rate of a trial and its accuracy, or why it failed."""
  try:
    return {'base_lr': config.base_lr, 'accuracy': _run(config, workdir, train)}
  except errors.UserError as e:
    logging.warning('The trial with base_lr=%g failed: %s', config.base_lr, e)
    return {'base_lr': config.base_lr, 'error': str(e)}


def _run(
  config: ml_collections.ConfigDict, workdir: storage.Path, train: Trainer
) -> float:
  """Returns the accuracy of a run; one that has begun continues."""
  folder = workdir_lib.at(workdir).artifact
  if not artifact.is_artifact(folder):
    with hosts.agreeing(str(workdir)):
      workdir.mkdir(parents=True, exist_ok=True)
      train(config, str(workdir))
  saved = files.read_json(folder / artifact.CONFIG)
  return saved['info']['metrics'][state_lib.BEST_METRIC]
