"""Settings of the command line that another setting leaves without effect."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import ml_collections

from vit_jax.configs import durations
from vit_jax.configs import spec
from vit_jax.runtime import errors

Config = ml_collections.ConfigDict
# Why settings have no effect; '' where they have one.
_Reason = Callable[[Config], str]


def refuse(config: Config, given: Mapping[str, Any] | Collection[str]) -> None:
  """Refuses settings that were asked for and would change nothing.

  In a run file they may stand: another command line needs them. An evaluation
  takes the command line of its run, and reads little of it.

  Args:
    config: settings, checked.
    given: names of those on the command line.

  Raises:
    errors.UserError: with the setting, and the one that is in its way.
  """
  if config.trainer == 'evaluate':
    return
  for name in given:
    if reason := find(config, name, given):
      raise errors.UserError(
        f'--config.{name} would have no effect: {reason}. Leave it out, or change'
        f' that.'
      )


def find(config: Config, name: str, given: Collection[str] = ()) -> str:
  """Returns why a setting has no effect; '' if it has one."""
  reasons = (_by_stages(config, name), _by_epochs(name, given))
  reasons += tuple(rule(config) for names, rule in _RULES if name in names)
  return next(filter(None, reasons), '')


def _by_stages(config: Config, name: str) -> str:
  """A stage's own settings come before those of the run."""
  if not config.stages or name not in durations.STAGE_SETTINGS:
    return ''
  same = {name, durations.EPOCHS.get(name, name)}
  is_set = all(same & set(stage) for stage in config.stages)
  return 'each of config.stages sets its own' if is_set else ''


def _by_epochs(name: str, given: Collection[str]) -> str:
  epochs = durations.EPOCHS.get(name)
  return f'--config.{epochs} comes before it' if epochs in given else ''


def _unless(is_read: Callable[[Config], Any], reason: str) -> _Reason:
  return lambda config: '' if is_read(config) else reason


def _in_a_stage(name: str, *values: Any) -> Callable[[Config], bool]:
  """Whether a setting has one of some values in the run or one of its stages."""
  return lambda config: any(
    stage[name] in values for stage in durations.split(config)
  )


def _is_lit(config: Config) -> bool:
  return spec.has_texts(config.model)


def _has_encoder(config: Config) -> bool:
  """Whether there are blocks of a Transformer or a Mixer."""
  return not config.model or spec.of(config.model).depth > 0


def _evaluates(config: Config) -> bool:
  every = config.eval_every_epochs
  return bool(config.eval_every if every is None else every)


_DROPOUT = ('dropout_rate', 'attention_dropout_rate')

_RULES: tuple[tuple[tuple[str, ...], _Reason], ...] = (
  (
    ('timescale',),
    _unless(
      _in_a_stage('decay_type', 'rsqrt'), "config.decay_type is not 'rsqrt'"
    ),
  ),
  (
    ('beta2',),
    _unless(
      _in_a_stage('optimizer', 'adamw', 'lamb', 'adafactor'),
      "config.optimizer is 'sgd'",
    ),
  ),
  (
    ('weight_decay_on',),
    _unless(
      lambda config: any(s.weight_decay for s in durations.split(config)),
      'config.weight_decay is 0',
    ),
  ),
  (
    ('layer_norm_epsilon', 'exact_gelu'),
    _unless(_has_encoder, 'config.model has no transformer'),
  ),
  (
    ('pretrained_dir', 'adapt_channels', 'adapt_patches'),
    _unless(lambda config: config.pretrained, "config.pretrained is ''"),
  ),
  (
    ('vocabulary', 'temperature_init', 'bias_init'),
    _unless(_is_lit, "only config.trainer='contrastive' reads it"),
  ),
  (
    ('bias_init',),
    _unless(
      lambda config: config.loss == 'sigmoid', "config.loss is not 'sigmoid'"
    ),
  ),
  (
    tuple(f'model.image.transformer.{name}' for name in _DROPOUT),
    lambda config: 'the image tower of LiT models is locked, without dropout',
  ),
  (
    ('pp.crop_area', 'pp.crop_ratio'),
    _unless(
      lambda config: not (config.pp.resize or config.pp.pad),
      'config.pp.resize and config.pp.pad take windows instead of areas',
    ),
  ),
  (
    ('pp.pad_mode',),
    _unless(lambda config: config.pp.pad, 'config.pp.pad is 0'),
  ),
  (
    ('evaluators',),
    _unless(_evaluates, 'config.eval_every is 0'),
  ),
  (
    ('base_lr', 'eval_every', 'eval_every_epochs'),
    _unless(
      lambda config: config.trainer != 'sweep',
      'a sweep tries the rates of config.sweep.base_lr and evaluates at the end',
    ),
  ),
)
