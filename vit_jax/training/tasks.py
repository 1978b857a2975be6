"""From a config to what training and evaluation share."""

from collections.abc import Iterator, Sequence
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

from vit_jax import models
from vit_jax.configs import arguments
from vit_jax.configs import models as model_configs
from vit_jax.data import augment
from vit_jax.data import dataset
from vit_jax.data import mixing
from vit_jax.data import pipeline
from vit_jax.data import preprocessing as preprocessing_lib
from vit_jax.data import sources
from vit_jax.data import subsets
from vit_jax.data import transforms
from vit_jax.models import blocks
from vit_jax.models import positions
from vit_jax.runtime import errors
from vit_jax.runtime import preemption
from vit_jax.runtime import sharding
from vit_jax.training import freeze as freeze_lib
from vit_jax.training import state as state_lib
from vit_jax.weights import adaptation
from vit_jax.weights import record as weights_lib


@dataclasses.dataclass(frozen=True)
class Data:
  """Both splits of a data set and how they become batches.

  Attributes:
    train: what to train on.
    test: what to evaluate on.
    train_transform: on the host, of an image of `train`.
    eval_transform: on the host, of an image of `test`.
    preprocessing: how an image of `test` becomes the model's input.
    preprocess: on the device, of a batch.
    mix: on the device, of a preprocessed batch for training; None for nothing.
    loader: arguments of `pipeline.train_batches` and `eval_batches`.
  """

  train: pipeline.Decoded
  test: pipeline.Decoded
  train_transform: grain.transforms.RandomMap
  eval_transform: grain.transforms.Map
  preprocessing: preprocessing_lib.Preprocessing
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
    return self.preprocessing.image_shape


def data(
  config: ml_collections.ConfigDict, splits: dataset.Splits | None = None
) -> Data:
  """Returns how a data set becomes batches; None opens it."""
  splits = splits or dataset.open_splits(config)
  train, test = splits.train, splits.test
  _check_channels(config, test.num_channels)
  preprocessing = preprocessing_lib.of_config(config, test.num_channels)
  how = {
    'size': preprocessing.size,
    'area': tuple(config.pp.crop_area),
    'ratio': tuple(config.pp.crop_ratio),
    'resize': config.pp.resize,
    'pad': config.pp.pad,
    'pad_mode': config.pp.pad_mode,
    'flip': config.pp.flip,
  }
  classes = len(test.source.class_names)
  logging.info(
    '%s: %d images to train on (%s%s), %d to test (%s)%s.',
    config.dataset,
    len(train),
    config.pp.train,
    _selection(train.source),
    len(test),
    config.pp.test,
    f', {classes} classes' if classes else '',  # There are none of captions.
  )
  if classes == 1:
    raise errors.UserError(
      f'{config.dataset} has only one class, {test.source.class_names[0]!r}: every'
      f' prediction would be right. Add images that are something else, such as'
      f' train/other/ and test/other/.'
    )
  mix = mixing.Mix(classes, config.pp.mixup, config.pp.cutmix)
  return Data(
    train=train,
    test=test,
    train_transform=transforms.TrainImage(
      **how, randaugment=tuple(config.pp.randaugment)
    ),
    eval_transform=transforms.EvalImage(
      preprocessing.size, preprocessing.resize_test
    ),
    preprocessing=preprocessing,
    preprocess=augment.Preprocess(
      **how,
      resize_test=preprocessing.resize_test,
      color_jitter=tuple(config.pp.color_jitter),
      random_erasing=config.pp.random_erasing,
      on_device=test.is_raw,
      mean=preprocessing.mean,
      std=preprocessing.std,
    ),
    mix=mix if mix.mixup or mix.cutmix else None,
    loader={
      'num_threads': config.num_threads,
      'num_workers': config.num_workers,
      'prefetch': config.prefetch,
    },
  )


def _selection(source: sources.Source) -> str:
  """Returns how a subset was chosen, for the log; nothing for a whole split."""
  return f', {source.how}' if isinstance(source, subsets.Subset) else ''


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


def abstract_state(
  params: dict[str, Any],
  tx: optax.GradientTransformation,
  mesh: jax.sharding.Mesh,
  freeze: Sequence[str] = (),
  has_ema: bool = False,
) -> state_lib.TrainState:
  """Returns shapes, dtypes and shardings of a state, without computing it.

  Args:
    params: of `models.abstract_params`.
    tx: the optimizer, of the parameters that are not frozen.
    mesh: of the devices.
    freeze: patterns of `freeze.split`.
    has_ema: whether there is a moving average of the parameters.
  """
  trained, _ = freeze_lib.split(params, freeze)
  state = state_lib.TrainState(
    step=jax.ShapeDtypeStruct((), jnp.int32),
    params=params,
    opt_state=jax.eval_shape(tx.init, trained),
    ema=params if has_ema else (),
  )
  return sharding.place_state(mesh, state)


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
  else:
    shapes = jax.eval_shape(blocks.unstack, shapes)
    params = _pretrained_params(config, shapes, image_shape, weights)
    params = blocks.stack(params) if config.scan_layers else params
  if config.posemb == 'sincos2d':
    _fix_positions(config, params, image_shape, weights)
  return params


def _fix_positions(
  config: ml_collections.ConfigDict,
  params: dict[str, Any],
  image_shape: tuple[int, int, int],
  weights: weights_lib.Weights | None,
) -> None:
  """Sets position embeddings to fixed ones; that of the class token to 0.

  Learned ones of a file are not replaced: it would give wrong features.
  """
  if weights is not None:
    have = weights_lib.flatten(weights.params)[adaptation.POSEMB]
    if not positions.are_sincos2d(have[0, int('cls' in weights.params) :]):
      raise errors.UserError(
        f"config.posemb is 'sincos2d', but {config.pretrained} has learned"
        f" position embeddings, which fixed ones cannot replace. Set 'learn'."
      )
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
  return adaptation.adapt(
    weights,
    {**shapes, 'head': head},
    config.model,
    path=config.pretrained,
    grid=grid,
    adapt_channels=config.adapt_channels,
    adapt_patches=config.adapt_patches,
  )
