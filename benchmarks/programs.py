"""Programs of the speed benchmarks: this library and its peers."""

from collections.abc import Callable
import dataclasses
import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks import harness
from benchmarks import official
from vit_jax import models
from vit_jax.configs import models as model_configs
from vit_jax.models import arithmetic
from vit_jax.models import flops
from vit_jax.models import inference as inference_lib
from vit_jax.training import state as state_lib
from vit_jax.training import update

_SEED = 0


def train(case: harness.Case) -> harness.Program:
  """Returns a training step: forward, backward, SGD with momentum."""
  if case.library in harness.TORCH_LIBRARIES:
    return _torch_train(case)
  model, params, images = _jax_inputs(case)
  tx, step = train_step(model)
  state = state_lib.TrainState(
    jnp.zeros((), jnp.int32), params, tx.init(params)
  )
  labels = jnp.zeros((case.batch,), jnp.int32)
  batch, key = {'image': images, 'label': labels}, jax.random.key(0)
  start = time.perf_counter()
  compiled = jax.jit(step, donate_argnums=0).lower(state, batch, key).compile()
  seconds = time.perf_counter() - start

  def run() -> Any:
    nonlocal state
    state, metrics = compiled(state, batch, key)
    return metrics

  return _program(case, run, seconds, compiled, backward=True)


def train_step(
  model: Any,
) -> tuple[optax.GradientTransformation, Callable[..., Any]]:
  """Returns the optimizer and the step of `train`."""
  tx = optax.sgd(0.01, momentum=0.9)
  loss_fn = update.make_loss_fn(model, lambda key, images: images)
  return tx, functools.partial(update.train_step, loss_fn=loss_fn, tx=tx)


def inference(case: harness.Case) -> harness.Program:
  """Returns a forward pass."""
  if case.library in harness.TORCH_LIBRARIES:
    return _torch_inference(case)
  model, params, images = _jax_inputs(case)
  forward = jax.jit(functools.partial(_forward, case.library, model))
  if case.library == 'vit_jax':
    params = inference_lib.cast_weights(params, model.dtype)
  start = time.perf_counter()
  compiled = forward.lower(params, images).compile()
  seconds = time.perf_counter() - start
  run = lambda: compiled(params, images)
  return _program(case, run, seconds, compiled, backward=False)


def _forward(library: str, model: Any, params: Any, images: jax.Array) -> Any:
  if library == 'vit_jax':
    return inference_lib.apply(model, params, images)
  return model.apply({'params': params}, images, train=False)


def jax_model(case: harness.Case) -> Any:
  """Returns the model of this library, or of the official operations."""
  config = model_configs.get_model_config(case.variant).to_dict()
  how = {'remat': case.remat, 'scan_layers': case.scan_layers}
  if 'transformer' in config:
    # Without dropout, like the PyTorch peers.
    config['transformer'] |= how | {
      'dropout_rate': 0.0,
      'attention': case.attention,
    }
  else:
    config |= how
  if case.library == 'official':
    return official.VisionTransformer(
      num_classes=harness.NUM_CLASSES,
      patches=config['patches'],
      transformer=config['transformer'],
      hidden_size=config['hidden_size'],
      dtype=case.dtype,
    )
  return models.from_config(
    config, num_classes=harness.NUM_CLASSES, dtype=policy(case)
  )


def policy(case: harness.Case) -> Any:
  """Returns the dtype of a model, with the changes that the case names.

  Each of them is a field of `arithmetic.Policy`, which gets its other value.
  """
  how = arithmetic.policy(case.dtype)
  changes = {}
  for name in filter(None, case.policy.split('+')):
    value = getattr(how, name)
    if isinstance(value, bool):
      changes[name] = not value
    else:
      changes[name] = {'float32': 'bfloat16', 'bfloat16': 'float32'}[value]
  return dataclasses.replace(how, **changes) if changes else case.dtype


def _jax_inputs(case: harness.Case) -> tuple[Any, Any, jax.Array]:
  model = jax_model(case)
  shape = (case.resolution, case.resolution, 3)
  shapes = jax.eval_shape(lambda: models.init_params(model, shape))
  rng = np.random.default_rng(_SEED)
  # Compiling the real initialisers takes longer than the measurement.
  params = jax.tree.map(
    lambda x: jnp.asarray(rng.normal(0, 0.02, x.shape), x.dtype), shapes
  )
  images = jnp.asarray(rng.uniform(-1, 1, (case.batch, *shape)), jnp.float32)
  return model, params, images


def _gflop(case: harness.Case, *, backward: bool) -> float:
  config = model_configs.get_model_config(case.variant).to_dict()
  model = models.from_config(config, num_classes=harness.NUM_CLASSES)
  shape = (case.resolution, case.resolution, 3)
  count = flops.train_flops if backward else flops.forward_flops
  return count(model, shape) / 1e9


def _program(case, run, seconds, compiled, *, backward) -> harness.Program:
  memory = compiled.memory_analysis()
  return harness.Program(
    start=run,
    gflop_per_image=_gflop(case, backward=backward),
    compile_s=seconds,
    temporary_gib=memory.temp_size_in_bytes / 2**30,
  )


def _torch_model(case: harness.Case) -> Any:
  """Returns a peer's model of the same sizes."""
  config = model_configs.get_model_config(case.variant)
  transformer, patch = config.transformer, config.patches.size[0]
  if case.library == 'timm':
    import timm  # Peers are not installed everywhere.

    token = config.classifier == 'token'
    return timm.models.VisionTransformer(
      img_size=case.resolution,
      patch_size=patch,
      num_classes=harness.NUM_CLASSES,
      global_pool='token' if token else 'avg',
      class_token=token,
      embed_dim=config.hidden_size,
      depth=transformer.num_layers,
      num_heads=transformer.num_heads,
      mlp_ratio=transformer.mlp_dim / config.hidden_size,
    )
  import transformers

  return transformers.ViTForImageClassification(
    transformers.ViTConfig(
      hidden_size=config.hidden_size,
      num_hidden_layers=transformer.num_layers,
      num_attention_heads=transformer.num_heads,
      intermediate_size=transformer.mlp_dim,
      image_size=case.resolution,
      patch_size=patch,
      num_labels=harness.NUM_CLASSES,
    )
  )


def _torch_forward(case: harness.Case) -> tuple[Any, Any, Any]:
  """Returns (model, forward, images); forward is autocast, and compiled on a GPU."""
  import torch

  device = 'cuda' if torch.cuda.is_available() else 'cpu'
  model = _torch_model(case).to(device)
  images = torch.rand(
    case.batch, 3, case.resolution, case.resolution, device=device
  )
  compiles = device == 'cuda' and case.compiled
  called = torch.compile(model) if compiles else model

  def forward():
    with torch.autocast(
      device, torch.bfloat16, enabled=case.dtype == 'bfloat16'
    ):
      outputs = called(images)
    return getattr(outputs, 'logits', outputs).float()

  return model, forward, images


def _torch_synchronize() -> None:
  import torch

  if torch.cuda.is_available():
    torch.cuda.synchronize()


def _torch_train(case: harness.Case) -> harness.Program:
  import torch

  model, forward, images = _torch_forward(case)
  model.train()
  optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
  labels = torch.zeros(case.batch, dtype=torch.long, device=images.device)

  def run() -> None:
    optimizer.zero_grad(set_to_none=True)
    torch.nn.functional.cross_entropy(forward(), labels).backward()
    optimizer.step()

  return _torch_program(case, run, backward=True)


def _torch_inference(case: harness.Case) -> harness.Program:
  import torch

  model, forward, _ = _torch_forward(case)
  model.eval()

  def run() -> None:
    with torch.inference_mode():
      forward()

  return _torch_program(case, run, backward=False)


def _torch_program(case, run, *, backward) -> harness.Program:
  start = time.perf_counter()
  run()
  _torch_synchronize()
  return harness.Program(
    start=run,
    gflop_per_image=_gflop(case, backward=backward),
    compile_s=time.perf_counter() - start,
    wait=lambda _: _torch_synchronize(),
  )
