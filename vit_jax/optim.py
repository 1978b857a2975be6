"""Learning-rate schedules and optimizers, from optax."""

from typing import Any

import flax.traverse_util
import jax
import optax

_LINEAR_END = 1e-5  # Of the official code.


def create_learning_rate_schedule(
  total_steps: int,
  base: float,
  decay_type: str,
  warmup_steps: int,
  linear_end: float = _LINEAR_END,
) -> optax.Schedule:
  """Returns the schedule of the official code: linear warm-up, then decay.

  Args:
    total_steps: step at which the decay ends.
    base: peak learning rate, reached at `warmup_steps`.
    decay_type: 'cosine' to 0, or 'linear' to `linear_end`.
    warmup_steps: steps of linear growth from 0; 0 for none.
    linear_end: last learning rate of the linear decay.

  Raises:
    ValueError: if `decay_type` is unknown.
  """
  decay_steps = max(total_steps - warmup_steps, 1)
  if decay_type == 'cosine':
    decay = optax.cosine_decay_schedule(base, decay_steps)
  elif decay_type == 'linear':
    decay = optax.linear_schedule(base, linear_end, decay_steps)
  else:
    raise ValueError(f"decay_type is {decay_type!r}, not 'cosine' or 'linear'.")
  if not warmup_steps:
    return decay
  warmup = optax.linear_schedule(0.0, base, warmup_steps)
  return optax.join_schedules([warmup, decay], [warmup_steps])


def decay_mask(params: Any) -> Any:
  """Marks the kernels: no bias, norm, class token or position embedding."""
  return flax.traverse_util.path_aware_map(
    lambda path, _: path[-1] == 'kernel', params
  )


def create_optimizer(
  learning_rate: optax.Schedule,
  *,
  optimizer: str = 'sgd',
  momentum: float = 0.9,
  beta2: float = 0.999,
  optim_dtype: str = 'bfloat16',
  grad_norm_clip: float = 1.0,
  weight_decay: float = 0.0,
  weight_decay_on: str = 'kernels',
) -> optax.GradientTransformation:
  """Returns clipping by global norm, then SGD with momentum or AdamW.

  Args:
    learning_rate: step to learning rate.
    optimizer: 'sgd' (decay added to the gradient) or 'adamw' (decoupled).
    momentum: of SGD; beta1 of AdamW.
    beta2: of AdamW.
    optim_dtype: of the momentum, 'bfloat16' or 'float32'.
    grad_norm_clip: largest global norm of the gradient; 0 for no limit.
    weight_decay: 0 for none.
    weight_decay_on: 'kernels' or 'all'.

  Raises:
    ValueError: if `optimizer` is unknown.
  """
  mask = decay_mask if weight_decay_on == 'kernels' else None
  parts = []
  if grad_norm_clip:
    parts.append(optax.clip_by_global_norm(grad_norm_clip))
  if optimizer == 'sgd':
    if weight_decay:
      parts.append(optax.add_decayed_weights(weight_decay, mask))
    parts.append(
      optax.sgd(learning_rate, momentum, accumulator_dtype=optim_dtype)
    )
  elif optimizer == 'adamw':
    parts.append(
      optax.adamw(
        learning_rate,
        b1=momentum,
        b2=beta2,
        mu_dtype=jax.numpy.dtype(optim_dtype),
        weight_decay=weight_decay,
        mask=mask,
      )
    )
  else:
    raise ValueError(f"optimizer is {optimizer!r}, not 'sgd' or 'adamw'.")
  return optax.chain(*parts)
