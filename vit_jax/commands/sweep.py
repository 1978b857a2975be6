"""Chooses the learning rate on held-out images, or cross-validates.

vit-jax sweep --config=configs/sweep.py:b16,cifar10 --workdir=/tmp/sweep
vit-jax sweep --config=configs/digits.py --workdir=/tmp/sweep \
  --base_lr=0.001,0.003,0.01 --seeds=0,1,2

Any run file can be swept. As in the paper (Sec. B.1.1), trials leave out a part of
the training images, on which the best rate is chosen; the test images are evaluated
once for each seed, at the end. The same command runs only what is not finished; with
other settings it refuses the workdir. A trial that fails does not stop the others.

--folds=5 cross-validates instead: five runs, each of which tests a fifth of
config.pp.train and trains on the rest; folds.json has mean and deviation.
"""

from collections.abc import Sequence
import functools

from absl import flags
import ml_collections
from ml_collections import config_flags

from vit_jax import folds
from vit_jax import runs
from vit_jax import sweep
from vit_jax.commands import cli
from vit_jax.commands import train
from vit_jax.configs import common
from vit_jax.runtime import errors


def define_flags() -> None:
  """Defines the flags of `vit-jax train` and those of the sweep."""
  train.define_flags()
  flags.DEFINE_integer(
    'folds', None, 'Parts of a cross-validation.', lower_bound=2
  )
  flags.DEFINE_list(
    'base_lr', None, 'Rates to try, 0.003,0.01,0.03; default: config.sweep.'
  )
  flags.DEFINE_list(
    'seeds', None, 'Seeds of the final runs; default: config.sweep, or 0.'
  )
  flags.DEFINE_string(
    'train',
    None,
    'Split that trials train on; default: config.sweep, or all but the last'
    ' tenth of config.pp.train.',
  )
  flags.DEFINE_string(
    'holdout', None, 'Split that rates are compared on; default: that tenth.'
  )


def _cross_validate() -> None:
  options = flags.FLAGS
  _refuse_other_trainers(options.config)
  config = train.read_config(runs.without_sweep(options.config))
  given = config_flags.get_override_values(options['config'])
  for name in ('pp.test', 'eval_every', 'eval_every_epochs'):
    if name in given:
      raise errors.UserError(
        f'--config.{name} has no effect with --folds: each run tests its own part of'
        f' config.pp.train once, at its end. Leave it out.'
      )
  if options.base_lr or options.seeds or options.train or options.holdout:
    raise errors.UserError(
      '--folds tests each part of config.pp.train with config.base_lr:'
      ' --base_lr, --seeds, --train and --holdout have no effect. Leave them out.'
    )
  folds.splits(config.pp.train, options.folds)  # Before anything takes long.
  run = functools.partial(
    folds.cross_validate, count=options.folds, train=train.train_and_report
  )
  train.launch(run, config)


def _refuse_other_trainers(config: ml_collections.ConfigDict) -> None:
  if config.trainer not in ('sweep', 'train', 'contrastive'):
    raise errors.UserError(
      f'config.trainer is {config.trainer!r}: a sweep needs a run file that trains.'
    )


def read_config() -> ml_collections.ConfigDict:
  """Returns the settings of the flags, with `sweep`, checked.

  Raises:
    errors.UserError: if one of them cannot work.
  """
  options = flags.FLAGS
  config = options.config.copy_and_resolve_references()
  _refuse_other_trainers(config)
  if 'sweep' not in config:
    if not options.base_lr:
      raise errors.UserError(
        '--base_lr must be given: the run file has no config.sweep that says'
        ' which rates to try. --base_lr=0.003,0.01,0.03 tries three.'
      )
    config = common.with_sweep(config, ())
  given = {
    'base_lr': _numbers('base_lr', float),
    'seeds': _numbers('seeds', int),
    'train': options.train,
    'holdout': options.holdout,
  }
  config.sweep.update({k: v for k, v in given.items() if v is not None})
  config = train.read_config(config)
  sweep.held_out(config)
  return config


def _numbers(name: str, kind: type) -> tuple[float | int, ...] | None:
  words = flags.FLAGS[name].value
  if words is None:
    return None
  try:
    return tuple(map(kind, words))
  except ValueError as e:
    raise errors.UserError(
      f'--{name}={",".join(words)} must be numbers with commas between.'
    ) from e


def main(argv: Sequence[str]) -> None:
  cli.refuse_words(argv)
  if flags.FLAGS.folds:
    _cross_validate()
    return
  config = read_config()
  train.launch(
    functools.partial(sweep.sweep, train=train.train_and_report), config
  )
