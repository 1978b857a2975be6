"""Completes the settings of a run, once, before anything is built."""

from collections.abc import Callable
import copy
import dataclasses
from typing import Any

from absl import logging
import jax
import ml_collections

from vit_jax import checkpoint
from vit_jax.configs import labels
from vit_jax.configs import resolved
from vit_jax.configs import spec
from vit_jax.configs import validate
from vit_jax.data import datasets
from vit_jax.models import attention_choice
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import onednn
from vit_jax.runtime import sharding
from vit_jax.runtime import workdir as workdir_lib
from vit_jax.weights import record as weights_lib
from vit_jax.weights import released

# Pretrained weights, if they were read, and the settings that they decide.
Pretrained = tuple[weights_lib.Weights | None, dict[str, Any]]

# Settings that the weights or the run so far decide if a config leaves them open.
DECIDED = (
  'model',
  'vocabulary',
  'layer_norm_epsilon',
  'exact_gelu',
  'pp.mean',
  'pp.std',
  'pp.interpolation',
  'pp.resize_test',
  'pp.crop',
)


@dataclasses.dataclass(frozen=True)
class Run:
  """The complete settings and inputs of a run, which never change.

  Attributes:
    config: all settings, none left open, durations in steps; locked.
    stages: the config of each stage.
    splits: the data set, opened.
    weights: the pretrained weights, if they were read.
    mesh: the devices.
  """

  config: ml_collections.ConfigDict
  stages: tuple[ml_collections.ConfigDict, ...]
  splits: datasets.Splits
  weights: weights_lib.Weights | None
  mesh: jax.sharding.Mesh


def read_weights(name: str, directory: str) -> weights_lib.Weights:
  """Finds and reads weights on each host; may download them."""
  with sharding.first_process_first():
    path = released.find(name, directory)
  return checkpoint.read(path)


def read_pretrained(config: ml_collections.ConfigDict) -> Pretrained:
  """Finds and reads the pretrained weights of a config; may download them."""
  try:
    weights = read_weights(config.pretrained, config.pretrained_dir)
  except errors.UserError as e:
    raise errors.UserError(
      f'config.pretrained is {config.pretrained!r}: {e} To train from scratch, set'
      f' config.pretrained= (empty).'
    ) from e
  logging.info('Starting from %s.', weights.source)
  if config.trainer != 'evaluate' and not labels.has_captions(config):
    weights = weights.image_tower()
  return weights, settings_of(weights)


def resolve(
  config: ml_collections.ConfigDict,
  mesh: jax.sharding.Mesh | None = None,
  *,
  begun: workdir_lib.Workdir | None = None,
  get_pretrained: Callable[
    [ml_collections.ConfigDict], Pretrained
  ] = read_pretrained,
  open_splits: Callable[
    [ml_collections.ConfigDict], datasets.Splits
  ] = datasets.open_splits,
  with_data: Callable[
    [ml_collections.ConfigDict], ml_collections.ConfigDict
  ] = datasets.with_data,
  measure: bool = True,
) -> Run:
  """Completes and checks a config with its weights, data set and devices.

  Args:
    config: settings, see `configs.common`.
    mesh: default: the mesh of the config, on all devices.
    begun: workdir of a run to resume or evaluate. Its `config.json` has the
      settings that the weights decided; they are not read again.
    get_pretrained: returns pretrained weights and the settings that they decide.
    open_splits: opens the data set of a config.
    with_data: completes a config by what its data set tells.
    measure: whether to time attention implementations; if not, 'auto' is 'xla'.

  Raises:
    errors.UserError: if a setting cannot work, the weights or the data cannot be
      read, or they leave a setting open.
  """
  config = validate.validate(config)
  mesh = mesh or sharding.make_mesh(**config.mesh)
  weights, saved, known = None, {}, {}
  if begun:
    saved = files.read_json(begun.config)
    flat = {**saved, **{f'pp.{k}': v for k, v in saved.get('pp', {}).items()}}
    known = {name: flat.get(name) for name in DECIDED}
  elif config.pretrained:
    weights, known = get_pretrained(config)
  is_open = [
    name for name in ('mean', 'std') if config.pp[name] is None and not begun
  ]
  config = resolved.with_defaults(config, known)
  if spec.has_texts(config.model) and not config.vocabulary:
    config.vocabulary = known.get('vocabulary') or ''
  config = with_data(config)
  splits = open_splits(config)
  config = datasets.with_scale(config, splits, is_open)
  config = resolved.in_steps(config, len(splits.train.source))
  config = validate.validate(config)
  if config.attention == 'auto' and not measure:
    config.attention = 'xla'
  elif config.model:
    config.attention = _attention(config, mesh, saved.get('attention'))
  config.cpu_products = _cpu_products(config, saved.get('cpu_products'))
  return Run(
    config=config,
    stages=tuple(resolved.stages(config)),
    splits=splits,
    weights=weights,
    mesh=mesh,
  )


def _attention(
  config: ml_collections.ConfigDict,
  mesh: jax.sharding.Mesh,
  before: str | None,
) -> str:
  """Returns config.attention; decides 'auto' once for the whole run."""
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
    pads_in_blocks=bool(spec.image_tower(config.model).get('rotary_base')),
    before=before,
  )


def _cpu_products(config: ml_collections.ConfigDict, before: str | None) -> str:
  """Returns config.cpu_products; 'auto' becomes what this process does.

  Raises:
    errors.UserError: if this process multiplies otherwise. Commands start it again.
  """
  if config.dtype != 'bfloat16' or jax.default_backend() != 'cpu':
    return config.cpu_products
  have, want = onednn.products(), config.cpu_products
  if before == 'auto':  # It has not multiplied in bfloat16 on a CPU yet.
    before = None
  if want == 'auto':
    want = before or have
  if want != have and before and not onednn.is_possible():
    logging.warning(
      'This run used oneDNN so far, which is not available here. It continues with'
      " config.cpu_products='xla'; results differ by rounding."
    )
    return have
  if want != have:
    raise errors.UserError(
      f'config.cpu_products is {want!r}, but this process started with {have!r}. Start'
      f' Python with {onednn.VARIABLE}={int(want == "onednn")}, jax 0.12 or later and a'
      f' processor that multiplies bfloat16.'
    )
  logging.info('Matrix products in bfloat16: %s.', have)
  return have


def settings_of(weights: weights_lib.Weights) -> dict[str, Any]:
  """Returns the settings that weights decide if a config leaves them open."""
  preprocessing = weights.preprocessing
  known: dict[str, Any] = {
    'pp.mean': preprocessing.mean,
    'pp.std': preprocessing.std,
    'pp.interpolation': preprocessing.interpolation,
    'pp.crop': preprocessing.size,
  }
  if weights.model is None:
    return known
  if spec.has_texts(weights.model):
    known['pp.resize_test'] = preprocessing.resize_test
  model = copy.deepcopy(dict(weights.model))
  known['vocabulary'] = weights.vocabulary
  tower, encoder = spec.image_tower(model), spec.encoder(model) or {}
  for name in ('layer_norm_epsilon', 'exact_gelu'):
    if name in encoder:
      known[name] = encoder.pop(name)
  tower.pop('dtype', None)  # config.dtype decides.
  if spec.of(model).representation_size:
    # The official code drops this layer to fine-tune released weights.
    tower['representation_size'] = None
  if not spec.has_texts(model) and tower.get('projection'):
    tower['projection'] = None  # It belongs to the texts.
  return {**known, 'model': model}
