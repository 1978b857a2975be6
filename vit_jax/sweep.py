"""Chooses the learning rate on held-out images, then trains on all of them.

python -m vit_jax.sweep --config=configs/sweep_cifar10.py --workdir=/tmp/sweep

As the paper does (Sec. B.1.1): each rate is tried without a part of the training
images, on which the best one is chosen; the test images are looked at once for
each seed, at the end. What was finished is not run again by the same command,
and a trial that fails does not stop the others.
"""

if __name__ == '__main__':
  from vit_jax import exits

  exits.on_interrupt()  # Before the imports, which take seconds.

  from vit_jax import huge_pages

  huge_pages.use()  # Likewise: it would repeat them.

from collections.abc import Mapping, Sequence
import json
import pathlib
import statistics
from typing import Any

from absl import flags
from absl import logging
import jax
from jax.experimental import multihost_utils
import ml_collections

from vit_jax import artifact
from vit_jax import cli
from vit_jax import errors
from vit_jax import main as main_lib
from vit_jax import plot
from vit_jax import state as state_lib
from vit_jax import train
from vit_jax.interop import files

Trial = dict[str, Any]

_AT_THE_END = 2**62  # More steps than any run has: the last one is evaluated.


def sweep(config: ml_collections.ConfigDict, workdir: str) -> dict[str, Any]:
  """Runs all trials and the final runs that are not finished yet.

  Args:
    config: with `sweep`, see `common.with_sweep`.
    workdir: folder for a workdir of each run, `sweep.json` and `sweep.png`.

  Returns:
    What `sweep.json` says: the trials, the best rate, accuracies by seed.

  Raises:
    errors.UserError: if no trial ended, or a final run fails.
  """
  root, how = pathlib.Path(workdir), config.sweep
  trials = [
    _trial(_held_out(config, rate), root / 'trials' / f'base_lr={rate:g}')
    for rate in how.base_lr
  ]
  ended = [trial for trial in trials if 'accuracy' in trial]
  if not ended:
    raise errors.UserError(
      f'None of {len(trials)} trials ended: {trials[0]["error"]}'
    )
  best = max(ended, key=lambda trial: trial['accuracy'])['base_lr']
  logging.info('The best of %s is %g.', tuple(how.base_lr), best)
  finals = {
    seed: _run(
      _with(config, base_lr=best, seed=seed),
      root / 'final' / f'base_lr={best:g}' / f'seed={seed}',
    )
    for seed in how.seeds
  }
  result = {'trials': trials, 'best_base_lr': best, 'test': finals}
  if jax.process_index() == 0:
    files.write_json(result, root / 'sweep.json')
    line = [trial['base_lr'] for trial in ended], [t['accuracy'] for t in ended]
    figure = plot.curves(
      {'accuracy on held-out images': {'': line}}, x='base_lr', log_x=True
    )
    plot.save(figure, root / 'sweep.png')
    print(table(result))
  return result


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
  config.trainer = 'train'
  del config['sweep']
  config.eval_every, config.eval_every_epochs = _AT_THE_END, None
  for name, value in settings.items():
    config[name] = value
  return config.lock()


def _held_out(
  config: ml_collections.ConfigDict, rate: float
) -> ml_collections.ConfigDict:
  trial = _with(config, base_lr=rate).unlock()
  trial.pp.train, trial.pp.test = config.sweep.train, config.sweep.holdout
  return trial.lock()


def _trial(config: ml_collections.ConfigDict, workdir: pathlib.Path) -> Trial:
  """Returns the rate of a trial and its accuracy, or why it failed."""
  try:
    return {'base_lr': config.base_lr, 'accuracy': _run(config, workdir)}
  except errors.UserError as e:
    logging.warning('The trial with base_lr=%g failed: %s', config.base_lr, e)
    return {'base_lr': config.base_lr, 'error': str(e)}


def _run(config: ml_collections.ConfigDict, workdir: pathlib.Path) -> float:
  """Returns the accuracy of a run, which goes on if it has begun."""
  if not artifact.is_artifact(workdir / 'artifact'):
    workdir.mkdir(parents=True, exist_ok=True)
    train.train_and_evaluate(config, str(workdir))
    if jax.process_count() > 1:  # Process 0 writes the artifact.
      multihost_utils.sync_global_devices(str(workdir))
  saved = json.loads((workdir / 'artifact' / artifact.CONFIG).read_text())
  return saved['info']['metrics'][state_lib.BEST_METRIC]


def main(argv: Sequence[str]) -> None:
  cli.refuse_words(argv)
  main_lib.run({('sweep', False): sweep})


if __name__ == '__main__':
  flags.mark_flags_as_required(['config', 'workdir'])
  cli.run(main)
