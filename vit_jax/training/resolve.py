"""Fills the settings that a config leaves open, before anything is built."""

import copy
import dataclasses
from typing import Any

from absl import logging
import jax
import ml_collections

from vit_jax import checkpoint
from vit_jax.configs import durations
from vit_jax.configs import resolved
from vit_jax.configs import spec
from vit_jax.configs import validate
from vit_jax.data import batching
from vit_jax.models import attention_choice
from vit_jax.runtime import files
from vit_jax.runtime import sharding
from vit_jax.runtime import workdir as workdir_lib
from vit_jax.weights import record as weights_lib
from vit_jax.weights import released


@dataclasses.dataclass(frozen=True)
class Filled:
  """What a run starts from.

  Attributes:
    config: with nothing left open, checked again.
    splits: the data set, opened.
    weights: the pretrained ones, if they were read.
  """

  config: ml_collections.ConfigDict
  splits: batching.Splits
  weights: weights_lib.Weights | None


def fill(
  config: ml_collections.ConfigDict,
  workdir: workdir_lib.Workdir,
  mesh: jax.sharding.Mesh,
  *,
  resumed: bool,
) -> Filled:
  """Asks the weights, the data set, the run so far and the device.

  Args:
    config: settings, checked.
    workdir: of the run.
    mesh: of the devices.
    resumed: whether it has a checkpoint. Its own `config.json` tells then, and
      the pretrained weights are not read.

  Raises:
    errors.UserError: if the weights or the data cannot be read, or do not tell.
  """
  weights, known, saved = None, {}, {}
  if resumed:
    saved = files.read_json(workdir.config)
    known = {
      'model': saved.get('model'),
      'layer_norm_epsilon': saved.get('layer_norm_epsilon'),
      'exact_gelu': saved.get('exact_gelu'),
      'pp.mean': saved.get('pp', {}).get('mean'),
      'pp.std': saved.get('pp', {}).get('std'),
      'pp.crop': saved.get('pp', {}).get('crop'),
    }
  elif config.pretrained:
    with sharding.first_process_first():
      path = released.find(config.pretrained, config.pretrained_dir)
    logging.info('Starting from %s.', path)
    weights = checkpoint.read(path)
    known = what_weights_say(weights)
  known = {k: v for k, v in known.items() if v is not None}
  config = resolved.with_defaults(config, known)
  splits = batching.open_splits(config)
  num_examples = len(splits.train.source)
  config = durations.in_steps(config, num_examples).unlock()
  validate.validate(config)
  config.attention = _attention(config, mesh, saved.get('attention'))
  return Filled(config.lock(), splits, weights)


def _attention(
  config: ml_collections.ConfigDict,
  mesh: jax.sharding.Mesh,
  before: str | None,
) -> str:
  """Returns config.attention, with 'auto' decided, once for all of a run."""
  model = spec.of(config.model)
  if not model.num_heads:
    return config.attention
  devices = mesh.shape['data'] * mesh.shape['fsdp']
  return attention_choice.choose(
    config.attention,
    batch=config.batch // config.accum_steps // devices,
    tokens=model.num_tokens(resolved.image_size(config)),
    width=model.width,
    num_heads=model.num_heads,
    dtype=config.dtype,
    heads_are_split=mesh.shape['model'] > 1,
    before=before,
  )


def what_weights_say(weights: weights_lib.Weights) -> dict[str, Any]:
  """Returns the settings that weights decide where a config leaves them open."""
  preprocessing = weights.preprocessing
  known = {
    'pp.mean': preprocessing.mean,
    'pp.std': preprocessing.std,
    'pp.crop': preprocessing.size,
  }
  if weights.model is None:
    return known
  model = copy.deepcopy(dict(weights.model))
  tower, encoder = spec.image_tower(model), spec.encoder(model) or {}
  for name in ('layer_norm_epsilon', 'exact_gelu'):
    if name in encoder:
      known[name] = encoder.pop(name)
  tower.pop('dtype', None)  # config.dtype says.
  if spec.of(model).representation_size:
    # As for released names: the official code drops the layer to fine-tune.
    tower['representation_size'] = None
  return {**known, 'model': model}
