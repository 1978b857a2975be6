"""Fills the settings that a config leaves open, before anything is built."""

import copy
import math
from typing import Any

from absl import logging
import jax
import ml_collections

from vit_jax import attention_choice
from vit_jax import checkpoint
from vit_jax import released
from vit_jax import sharding
from vit_jax import storage
from vit_jax import weights as weights_lib
from vit_jax.configs import durations
from vit_jax.configs import models as model_configs
from vit_jax.configs import resolved
from vit_jax.configs import validate
from vit_jax.data import captions
from vit_jax.data import sources
from vit_jax.interop import files


def fill(
  config: ml_collections.ConfigDict,
  workdir: str,
  mesh: jax.sharding.Mesh,
  *,
  resumed: bool,
) -> tuple[ml_collections.ConfigDict, weights_lib.Weights | None]:
  """Asks the weights, the run so far and the device.

  Args:
    config: settings, checked.
    workdir: of the run.
    mesh: of the devices.
    resumed: whether it has a checkpoint. Its own `config.json` tells then, and
      the pretrained weights are not read.

  Returns:
    The config with nothing left open, checked again, and the
    pretrained weights, if they were read.

  Raises:
    errors.UserError: if the weights cannot be read, or do not tell.
  """
  weights, known = None, {}
  if resumed:
    saved = files.read_json(storage.as_path(workdir) / 'config.json')
    known = {
      'model': saved.get('model'),
      'layer_norm_epsilon': saved.get('layer_norm_epsilon'),
      'exact_gelu': saved.get('exact_gelu'),
      'pp.mean': saved.get('pp', {}).get('mean'),
      'pp.std': saved.get('pp', {}).get('std'),
    }
  elif config.pretrained:
    with sharding.first_process_first():
      path = released.find(config.pretrained, config.pretrained_dir)
    logging.info('Starting from %s.', path)
    weights = checkpoint.read(path)
    known = _what_weights_say(weights)
  known = {k: v for k, v in known.items() if v is not None}
  config = resolved.with_defaults(config, known)
  num_examples = _num_examples(config) if durations.has_epochs(config) else 0
  config = durations.in_steps(config, num_examples).unlock()
  validate.validate(config)
  config.attention = _attention(config, mesh)
  return config.lock(), weights


def _num_examples(config: ml_collections.ConfigDict) -> int:
  """Returns how many images there are to train on."""
  if 'text_model' in config.model:
    folder = storage.local_path(config.dataset)
    return len(captions.open_captions(folder, config.pp.train))
  with sharding.first_process_first():
    return len(
      sources.get_source(
        config.dataset, config.pp.train, data_dir=config.tfds_data_dir
      )
    )


def _attention(
  config: ml_collections.ConfigDict, mesh: jax.sharding.Mesh
) -> str:
  """Returns config.attention, with 'auto' decided."""
  model = config.model.get('image', config.model)
  if not model.get('transformer'):
    return config.attention
  grid = model_configs.patch_grid(
    resolved.image_size(config), tuple(model.patches.size), model.get('resnet')
  )
  devices = mesh.shape['data'] * mesh.shape['fsdp']
  return attention_choice.choose(
    config.attention,
    batch=config.batch // config.accum_steps // devices,
    tokens=math.prod(grid) + model.classifier.startswith('token'),
    width=model.hidden_size,
    num_heads=model.transformer.num_heads,
    dtype=config.dtype,
    heads_are_split=mesh.shape['model'] > 1,
  )


def _what_weights_say(weights: weights_lib.Weights) -> dict[str, Any]:
  known = {'pp.mean': tuple(weights.mean), 'pp.std': tuple(weights.std)}
  if weights.model is None:
    return known
  model = copy.deepcopy(dict(weights.model))
  tower = model.get('image', model)
  encoder = tower.get('transformer') or tower
  for name in ('layer_norm_epsilon', 'exact_gelu'):
    if name in encoder:
      known[name] = encoder.pop(name)
  tower.pop('dtype', None)  # config.dtype says.
  return {**known, 'model': model}
