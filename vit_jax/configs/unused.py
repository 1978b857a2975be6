"""Refuses settings on the command line that another setting makes useless."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import ml_collections

from vit_jax.configs import common
from vit_jax.configs import labels
from vit_jax.configs import losses
from vit_jax.configs import resolved
from vit_jax.configs import spec
from vit_jax.data.rows import shards
from vit_jax.data.rows import table_files
from vit_jax.runtime import errors

_Rule = Callable[[ml_collections.ConfigDict], Any]


def refuse(
  config: ml_collections.ConfigDict, given: Mapping[str, Any] | Collection[str]
) -> None:
  """Refuses settings on the command line, `given`, that would change nothing.

  Run files may have them, because another command line can give them an effect. An
  evaluation repeats the command line of its run, and reads little of it.

  Raises:
    errors.UserError: with the setting, and the one that makes it useless.
  """
  if config.trainer == 'evaluate':
    return
  for name in given:
    if reason := find(config, name, given):
      raise errors.UserError(
        f'config.{name} would have no effect: {reason}. Leave it out, or change'
        f' that.'
      )


def find(
  config: ml_collections.ConfigDict, name: str, given: Collection[str] = ()
) -> str:
  """Returns why a setting has no effect; '' if it has one."""
  if name in resolved.STAGE_SETTINGS and config.stages:
    pairs = (pair for pair in resolved.EPOCHS.items() if name in pair)
    same = next(pairs, (name,))
    if all(set(same) & set(stage) for stage in config.stages):
      return 'each of config.stages sets its own'
  epochs = resolved.EPOCHS.get(name)
  if epochs in given and config[epochs] is not None:
    return f'config.{epochs} overrides it'
  reasons = (
    reason
    for names, is_read, reason in _RULES
    if name in names and not is_read(config)
  )
  return next(reasons, '')


def _in_a_stage(name: str, *values: Any) -> _Rule:
  """Tests whether a stage, or a run without stages, has one of some values."""
  return lambda config: any(
    stage[name] in values for stage in resolved.stages(config)
  )


def _has_encoder(config: ml_collections.ConfigDict) -> bool:
  """Whether there are blocks of a Transformer or a Mixer."""
  return not config.model or spec.of(config.model).depth > 0


def _has_gelu(config: ml_collections.ConfigDict) -> bool:
  """Whether blocks have the GELU that has two formulas, or may have it."""
  if not config.model or spec.has_texts(config.model):
    return True
  block = (spec.encoder(config.model) or {}).get('block') or {}
  return block.get('activation', 'gelu') == 'gelu'


_DROPOUT = ('dropout_rate', 'attention_dropout_rate')

# Names of settings, whether a run reads them, and the reason why it does not.
_RULES: tuple[tuple[tuple[str, ...], _Rule, str], ...] = (
  (
    ('timescale',),
    _in_a_stage('decay_type', 'rsqrt'),
    "config.decay_type is not 'rsqrt'",
  ),
  (
    ('beta2',),
    lambda config: any(s.optimizer != 'sgd' for s in resolved.stages(config)),
    "config.optimizer is 'sgd'",
  ),
  (
    ('weight_decay_on',),
    lambda config: any(s.weight_decay for s in resolved.stages(config)),
    'config.weight_decay is 0',
  ),
  (
    ('layer_norm_epsilon', 'exact_gelu'),
    _has_encoder,
    'config.model has no transformer',
  ),
  (
    ('pretrained_dir', 'adapt_channels', 'adapt_patches'),
    lambda config: config.pretrained,
    "config.pretrained is ''",
  ),
  (
    ('vocabulary', 'temperature_init', 'bias_init', 'lock_image_tower'),
    labels.has_captions,
    "only config.trainer='contrastive' reads it",
  ),
  (
    ('class_weights', 'focal_gamma'),
    lambda config: not labels.has_captions(config),
    'captions have no classes',
  ),
  (
    ('class_weights',),
    lambda config: (
      config.class_weights != losses.BALANCED or not config.pp.balance_classes
    ),
    'config.pp.balance_classes makes all classes equally frequent',
  ),
  (
    tuple(f'columns.{name}' for name in common.get_config().columns),
    lambda config: (
      table_files.is_table(config.dataset) or shards.is_shards(config.dataset)
    ),
    'config.dataset is not a table',
  ),
  (
    ('lora_alpha', 'lora_targets'),
    lambda config: config.lora_rank,
    'config.lora_rank is 0',
  ),
  (
    ('distill.loss', 'distill.weight', 'distill.temperature'),
    lambda config: config.distill.teacher,
    "config.distill.teacher is ''",
  ),
  (
    ('distill.temperature',),
    lambda config: config.distill.loss == losses.SOFT,
    f'config.distill.loss is {losses.HARD!r}',
  ),
  (
    ('bias_init',),
    lambda config: config.loss == 'sigmoid',
    "config.loss is not 'sigmoid'",
  ),
  (
    tuple(f'model.image.transformer.{name}' for name in _DROPOUT),
    lambda config: not config.lock_image_tower,
    'config.lock_image_tower keeps the image tower as it is, without dropout',
  ),
  (
    ('pp.crop_area', 'pp.crop_ratio'),
    lambda config: not (config.pp.resize or config.pp.pad),
    'config.pp.resize and config.pp.pad take windows instead of areas',
  ),
  (('pp.pad_mode',), lambda config: config.pp.pad, 'config.pp.pad is 0'),
  (
    ('evaluators', 'best_metric'),
    lambda config: resolved.evaluates(config) or config.trainer == 'sweep',
    'config.eval_every is 0',
  ),
  (
    ('batch_eval',),
    lambda config: (
      resolved.evaluates(config)
      or config.pp.holdout
      or config.trainer == 'sweep'
    ),
    'config.eval_every is 0',
  ),
  (
    ('label_smoothing', 'class_weights', 'focal_gamma'),
    lambda config: not config.distill.teacher or config.distill.weight < 1,
    'config.distill.weight is 1, so that the labels do not count',
  ),
  (
    ('cpu_products',),
    lambda config: config.dtype == 'bfloat16',
    "config.dtype is not 'bfloat16'",
  ),
  (
    ('exact_gelu',),
    _has_gelu,
    'config.model.transformer.block.activation is another one',
  ),
  (
    ('base_lr', 'eval_every', 'eval_every_epochs'),
    lambda config: config.trainer != 'sweep',
    'a sweep tries the rates of config.sweep.base_lr and evaluates at the end',
  ),
)
