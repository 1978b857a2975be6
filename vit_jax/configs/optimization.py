"""Settings of the schedule and the optimizer."""

import types

from vit_jax.configs import rules

_LORA_TARGETS = ('query', 'key', 'value', 'out', 'mlp')


def declare_schedule(config: types.SimpleNamespace) -> None:
  """Adds batch sizes, durations and the learning rate."""
  # Images per step, over all hosts and devices.
  config.batch = rules.number(512, low=1)
  # Parts of a batch whose gradients are computed one after the other, to save
  # memory.
  config.accum_steps = rules.number(8, low=1)
  # Images per step of an evaluation, over all hosts and devices.
  config.batch_eval = rules.number(512, low=1)
  # Steps of the run.
  config.total_steps = rules.number(None, low=1, kind=int)
  # Durations in epochs override durations in steps, except steps set on the
  # command line. An epoch is the images that are trained on.
  config.total_epochs = rules.number(None, low=0.001, kind=float)
  config.warmup_epochs = rules.number(None, low=0.0, kind=float)
  config.cooldown_epochs = rules.number(None, low=0.0, kind=float)
  config.eval_every_epochs = rules.number(None, low=0.0, kind=float)
  config.checkpoint_every_epochs = rules.number(None, low=0.0, kind=float)
  # Peak learning rate, reached after the warm-up. A run that is too short for its
  # warm-up and cool-down trains with a lower one, and a warning.
  config.base_lr = rules.number(0.03, low=0.0)
  # Steps over which the learning rate rises linearly from 0.
  config.warmup_steps = rules.number(500, low=0)
  # Learning rate after the warm-up: 'cosine' to 0, 'linear' to 1e-5, 'rsqrt'
  # (reciprocal square root) or 'constant'.
  config.decay_type = rules.one_of('cosine', 'linear', 'rsqrt', 'constant')
  # Steps after the warm-up at which 'rsqrt' is at 0.71 of its peak.
  config.timescale = rules.number(10_000, low=1)
  # Final steps over which the learning rate is also reduced linearly to 0.
  config.cooldown_steps = rules.number(0, low=0)


def declare_optimizer(config: types.SimpleNamespace) -> None:
  """Adds the optimizer, which parameters it trains, and the stages of a run."""
  # Largest global norm of the gradient; 0 for no limit.
  config.grad_norm_clip = rules.number(1.0, low=0.0)
  # The optimizer. 'muon' orthogonalises the steps of the matrices in blocks
  # (arXiv:2502.16982) and uses AdamW for all other parameters; its steps are scaled
  # so that one learning rate suits both.
  config.optimizer = rules.one_of('sgd', 'adamw', 'lamb', 'adafactor', 'muon')
  # Momentum of SGD, Adafactor and Muon; beta1 of AdamW, also in Muon, and LAMB.
  # Below 1.
  config.momentum = rules.number(0.9, low=0.0, high=0.999999)
  # beta2 of AdamW, also in Muon, and LAMB; upper limit of Adafactor's
  # (arXiv:2106.04560).
  config.beta2 = rules.number(0.999, low=0.0, high=0.9999999)
  # Precision of the momentum.
  config.optim_dtype = rules.one_of('bfloat16', 'float32')
  # Weight decay: an L2 term of the gradient in SGD, decoupled in the others.
  config.weight_decay = rules.number(0.0, low=0.0)
  # Which parameters decay: 'kernels', with the matrices of LoRA (no biases, norms,
  # class token, position embeddings), or 'all'.
  config.weight_decay_on = rules.one_of('kernels', 'all')
  # Learning rate of a block relative to the next one. 1: the same for all.
  # arXiv:2106.08254 fine-tunes with 0.65 to 0.75. Not available for LiT.
  config.layer_decay = rules.number(1.0, low=1e-3, high=1.0)
  # Radius of Sharpness-Aware Minimisation, which computes two gradients per step.
  # 0: off.
  config.sam_rho = rules.number(0.0, low=0.0)
  # Decay of a moving average of the parameters, which is evaluated and saved too.
  # 0: off.
  config.ema_decay = rules.number(0.0, low=0.0, high=0.9999999)
  # Regular expressions: a parameter is frozen if one of them matches the start of
  # its name. r'(?!head/)' trains only the head.
  config.freeze = rules.such(
    (),
    lambda patterns: all(isinstance(p, str) for p in patterns),
    'a tuple of regular expressions',
  )
  # Rank of LoRA (arXiv:2106.09685): instead of the kernels of some modules, two
  # matrices of this rank are trained, whose product times `lora_alpha` / rank is added
  # to each; the head is trained too. The artifact has plain kernels. 0: off.
  config.lora_rank = rules.number(0, low=0, high=4096)
  config.lora_alpha = rules.number(16.0, low=1e-3, high=1e4)
  # Modules of LoRA: 'query', 'key', 'value', 'out' of attention, and 'mlp'.
  config.lora_targets = rules.such(
    _LORA_TARGETS,
    lambda names: len(names) and set(names) <= set(_LORA_TARGETS),
    f'some of {_LORA_TARGETS}',
  )
  # Stages of a run, one after the other: dicts of settings, with `total_steps` or
  # `total_epochs`, that override those of the config.
  config.stages = ()
