"""From a config to what training and evaluation share."""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
from typing import Any

from absl import logging
import flax.linen as nn
import grain
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import optax

from vit_jax import checkpoint
from vit_jax import errors
from vit_jax import freeze as freeze_lib
from vit_jax import models
from vit_jax import optim
from vit_jax import preemption
from vit_jax import sharding
from vit_jax import state as state_lib
from vit_jax import weights as weights_lib
from vit_jax.configs import arguments
from vit_jax.configs import models as model_configs
from vit_jax.configs import resolved
from vit_jax.data import augment
from vit_jax.data import mixing
from vit_jax.data import pipeline
from vit_jax.data import sources
from vit_jax.data import subsets
from vit_jax.data import transforms
from vit_jax.models import blocks
from vit_jax.models import positions


@dataclasses.dataclass(frozen=True)
class Data:
  """Both splits of a data set and how they become batches.

  Attributes:
    train: what to train on.
    test: what to evaluate on.
    train_transform: on the host, of an image of `train`.
    eval_transform: on the host, of an image of `test`.
    preprocess: on the device, of a batch.
    mix: on the device, of a preprocessed batch for training; None for nothing.
    loader: arguments of `pipeline.train_batches` and `eval_batches`.
  """

  train: pipeline.Decoded
  test: pipeline.Decoded
  train_transform: grain.transforms.RandomMap
  eval_transform: grain.transforms.Map
  preprocess: augment.Preprocess
  mix: mixing.Mix | None
  loader: dict[str, int]

  @property
  def class_names(self) -> list[str]:
    """Names of the classes, in the order of the logits."""
    return list(self.test.source.class_names)

  @property
  def image_shape(self) -> tuple[int, int, int]:
    """[H, W, C] of the model's input."""
    return (*self.preprocess.size, self.test.num_channels)


def _decoded(
  config: ml_collections.ConfigDict, split: str, train: bool
) -> pipeline.Decoded:
  with sharding.first_process_first():
    source = sources.get_source(
      config.dataset, split, data_dir=config.tfds_data_dir
    )
  channels = config.pp.channels
  if isinstance(source, sources.ArraySource) and channels not in (
    None,
    source.image_shape[-1],
  ):
    raise errors.UserError(
      f'config.pp.channels is {channels}: only image files can be read so;'
      f' {config.dataset} has {source.image_shape[-1]} channels.'
    )
  if train and config.pp.shots:
    source = subsets.few_shots(source, config.pp.shots)
  if train and config.pp.balance_classes:
    source = subsets.balanced(source)
  return pipeline.Decoded(
    source,
    exif=config.pp.exif,
    on_bad_image=config.on_bad_image,
    channels=channels,
    train=train,
    on_host=bool(config.pp.randaugment),
  )


def data(
  config: ml_collections.ConfigDict,
  decoded: Callable[..., pipeline.Decoded] = _decoded,
) -> Data:
  """Opens the data set, by `decoded`; no image of a folder is read yet."""
  train = decoded(config, config.pp.train, train=True)
  test = decoded(config, config.pp.test, train=False)
  _check_channels(config, test.num_channels)
  how = {
    'size': resolved.image_size(config),
    'area': tuple(config.pp.crop_area),
    'ratio': tuple(config.pp.crop_ratio),
    'resize': config.pp.resize,
    'pad': config.pp.pad,
    'pad_mode': config.pp.pad_mode,
    'flip': config.pp.flip,
  }
  resize_test = resolved.resize_test(config)
  classes = len(test.source.class_names)
  logging.info(
    '%s: %d images to train on (%s), %d to test (%s)%s.',
    config.dataset,
    len(train),
    config.pp.train,
    len(test),
    config.pp.test,
    f', {classes} classes' if classes else '',  # There are none of captions.
  )
  mix = mixing.Mix(classes, config.pp.mixup, config.pp.cutmix)
  return Data(
    train=train,
    test=test,
    train_transform=transforms.TrainImage(
      **how, randaugment=tuple(config.pp.randaugment)
    ),
    eval_transform=transforms.EvalImage(how['size'], resize_test),
    preprocess=augment.Preprocess(
      **how,
      resize_test=resize_test,
      color_jitter=tuple(config.pp.color_jitter),
      random_erasing=config.pp.random_erasing,
      on_device=test.is_raw,
      mean=tuple(config.pp.mean),
      std=tuple(config.pp.std),
    ),
    mix=mix if mix.mixup or mix.cutmix else None,
    loader={
      'num_threads': config.num_threads,
      'num_workers': config.num_workers,
      'prefetch': config.prefetch,
    },
  )


def eval_batches(
  data: Data, mesh: jax.sharding.Mesh, batch_size: int
) -> Iterator[dict[str, jax.Array]]:
  """Yields the test split, each host its part of every batch.

  Raises:
    preemption.StopRequestedError: if the run is to stop.
  """
  parts = pipeline.eval_batches(
    data.test,
    data.eval_transform,
    batch_size=batch_size,
    shard=sharding.data_shard(mesh, batch_size),
    **data.loader,
  )
  for batch in sharding.put_batches(parts, mesh, batch_size):
    preemption.check()
    yield batch


def _check_channels(config: ml_collections.ConfigDict, channels: int) -> None:
  for name, values in (('mean', config.pp.mean), ('std', config.pp.std)):
    if len(values) not in (1, channels):
      raise errors.UserError(
        f'config.pp.{name} is {tuple(values)}, must have 1 value or'
        f' {channels}, as many as the images have channels.'
      )
  for name in ('randaugment', 'color_jitter'):
    if config.pp[name] and channels not in (1, 3):
      raise errors.UserError(
        f'config.pp.{name} is {tuple(config.pp[name])}: it changes the colours of'
        f' images with 1 or 3 channels, these have {channels}.'
      )


def model(config: ml_collections.ConfigDict, num_classes: int) -> nn.Module:
  """Returns the model of a config."""
  return models.from_config(arguments.of_model(config), num_classes=num_classes)


def optimizer(
  config: ml_collections.ConfigDict,
) -> tuple[optax.GradientTransformation, optax.Schedule]:
  """Returns the optimizer of a config and its learning rate by step."""
  schedule = optim.create_learning_rate_schedule(
    config.total_steps,
    config.base_lr,
    config.decay_type,
    config.warmup_steps,
    timescale=config.timescale,
    cooldown_steps=config.cooldown_steps,
  )
  tx = optim.create_optimizer(
    schedule,
    optimizer=config.optimizer,
    momentum=config.momentum,
    beta2=config.beta2,
    optim_dtype=config.optim_dtype,
    grad_norm_clip=config.grad_norm_clip,
    weight_decay=config.weight_decay,
    weight_decay_on=config.weight_decay_on,
    layer_decay=config.layer_decay,
    sam_rho=config.sam_rho,
  )
  return tx, schedule


def abstract_state(
  module: nn.Module,
  tx: optax.GradientTransformation,
  image_shape: tuple[int, int, int],
  mesh: jax.sharding.Mesh,
  freeze: Sequence[str] = (),
  has_ema: bool = False,
) -> state_lib.TrainState:
  """Returns shapes, dtypes and shardings of a state, without computing it."""

  def create() -> state_lib.TrainState:
    params = models.init_params(module, image_shape)
    trained, _ = freeze_lib.split(params, freeze)
    step = jnp.zeros((), jnp.int32)
    ema = params if has_ema else ()
    return state_lib.TrainState(step, params, tx.init(trained), ema)

  return sharding.place(mesh, jax.eval_shape(create))


def initial_params(
  config: ml_collections.ConfigDict,
  module: nn.Module,
  shapes: dict[str, Any],
  image_shape: tuple[int, int, int],
  weights: weights_lib.Weights | None = None,
) -> dict[str, Any]:
  """Returns the parameters to start with, pretrained or random.

  Args:
    config: settings.
    module: the model.
    shapes: of its parameters.
    image_shape: [H, W, C] of its input.
    weights: None for random ones.
  """
  if weights is None:
    params = models.init_params(module, image_shape, config.seed)
    if config.posemb == 'sincos2d':
      _fix_positions(config, params, image_shape)
    return params
  shapes = jax.eval_shape(blocks.unstack, shapes)
  params = _pretrained_params(config, shapes, image_shape, weights)
  return blocks.stack(params) if config.scan_layers else params


def _fix_positions(
  config: ml_collections.ConfigDict,
  params: dict[str, Any],
  image_shape: tuple[int, int, int],
) -> None:
  """Replaces random position embeddings; that of the class token becomes 0."""
  grid = model_configs.patch_grid(
    image_shape[:2],
    tuple(config.model.patches.size),
    config.model.get('resnet'),
  )
  embeddings = positions.sincos2d(grid, config.model.hidden_size)
  tokens = ((int('cls' in params), 0), (0, 0))
  params['Transformer']['posembed_input'] = {
    'pos_embedding': jnp.asarray(np.pad(embeddings, tokens)[None])
  }


def _pretrained_params(
  config: ml_collections.ConfigDict,
  shapes: dict[str, Any],
  image_shape: tuple[int, int, int],
  weights: weights_lib.Weights,
) -> dict[str, Any]:
  head = {
    'kernel': np.zeros(shapes['head']['kernel'].shape, np.float32),
    'bias': np.full(
      shapes['head']['bias'].shape, config.head_bias_init, np.float32
    ),
  }
  grid = model_configs.patch_grid(
    image_shape[:2],
    tuple(config.model.patches.size),
    config.model.get('resnet'),
  )
  return checkpoint.adapt(
    weights,
    {**shapes, 'head': head},
    config.model,
    path=config.pretrained,
    grid=grid,
    adapt_channels=config.adapt_channels,
    adapt_patches=config.adapt_patches,
  )
