"""Which values a setting may have: one of some names, or a number in a range."""

import difflib
import sys
from typing import Any

from vit_jax.runtime import errors

CHOICES = {
  'trainer': ('train', 'contrastive', 'evaluate', 'sweep'),
  'dtype': ('float32', 'bfloat16'),
  'attention': ('auto', 'xla', 'cudnn'),
  'remat': ('', 'full', 'dots_saveable', 'dots_with_no_batch_dims_saveable'),
  'decay_type': ('cosine', 'linear', 'rsqrt', 'constant'),
  'optimizer': ('sgd', 'adamw', 'lamb', 'adafactor'),
  'optim_dtype': ('bfloat16', 'float32'),
  'weight_decay_on': ('kernels', 'all'),
  'posemb': ('learn', 'sincos2d'),
  'loss': ('softmax', 'sigmoid'),
  'on_bad_image': ('raise', 'skip'),
  'adapt_channels': ('', 'sum', 'repeat'),
}

RANGES = {  # Smallest and largest value, both included; None: any finite one.
  'seed': (0, 2**32 - 1),
  'total_steps': (1, None),
  'total_epochs': (0.001, None),
  'warmup_steps': (0, None),
  'warmup_epochs': (0.0, None),
  'cooldown_steps': (0, None),
  'cooldown_epochs': (0.0, None),
  'base_lr': (0.0, None),
  'batch': (1, None),
  'batch_eval': (1, None),
  'accum_steps': (1, None),
  'grad_norm_clip': (0.0, None),
  'weight_decay': (0.0, None),
  'momentum': (0.0, 0.999999),  # 1 would never move.
  'beta2': (0.0, 0.9999999),
  'timescale': (1, None),
  'layer_decay': (1e-3, 1.0),
  'sam_rho': (0.0, None),
  'ema_decay': (0.0, 0.9999999),
  'label_smoothing': (0.0, 1.0),
  'temperature_init': (1e-3, 1e3),
  'bias_init': (-1e3, 1e3),
  'stochastic_depth_rate': (0.0, 0.999),
  'layer_norm_epsilon': (0.0, None),
  'progress_every': (0, None),
  'eval_every': (0, None),
  'eval_every_epochs': (0.0, None),
  'checkpoint_every': (0, None),
  'checkpoint_every_epochs': (0.0, None),
  'keep_checkpoints': (1, None),
  'num_threads': (1, 1024),
  'num_workers': (0, 1024),
  'prefetch': (1, 1024),
}

# None until the pretrained weights are read, or where the other unit is set.
_MAY_BE_NONE = (
  'layer_norm_epsilon',
  'total_steps',
  *(name for name in RANGES if name.endswith('_epochs')),
)


def check(name: str, value: Any, where: str = 'config.') -> None:
  """Checks the value of a setting, if there is a rule for it.

  Args:
    name: of the setting.
    value: of the setting.
    where: what stands before the name in the message.

  Raises:
    errors.UserError: with the setting, its value, and what it may be.
  """
  choices = CHOICES.get(name)
  if choices and value not in choices:
    near = difflib.get_close_matches(str(value), choices, 1)
    hint = f' Did you mean {near[0]!r}?' if near else ''
    raise errors.UserError(
      f'{where}{name} is {value!r}, must be one of {choices}.{hint}'
    )
  if name not in RANGES or (value is None and name in _MAY_BE_NONE):
    return
  if value is None:
    raise errors.UserError(f'{where}{name} must be set: config.{name}=...')
  check_range(f'{where}{name}', value, *RANGES[name])


def check_range(
  name: str,
  value: int | float,
  low: int | float,
  high: int | float | None = None,
) -> None:
  """Raises `errors.UserError` at a number outside of a range, NaN or infinity."""
  if not low <= value <= (sys.float_info.max if high is None else high):
    limit = f'at least {low}' if high is None else f'from {low} to {high}'
    if value == float('inf'):
      limit += ' and finite'
    raise errors.UserError(f'{name} is {value}, must be {limit}.')
