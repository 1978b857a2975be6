"""What a training step takes on hardware that need not be here, and what fits.

vit-jax plan --config=configs/h14_imagenet.py --topology=v5e:16x16 \
  --mesh=data:64,fsdp:4 --config.dtype=bfloat16 --config.batch=4096

Compiles the step that the config trains. It reads no images, downloads nothing, and
reads weights only where they alone say which model it is. TPUs need
`pip install 'vit_jax[plan]'`. With --devices=N it compiles for N virtual CPU devices,
whose activations are float32; with neither, for the devices here. Attention is by
XLA unless config.attention says otherwise.
"""

from collections.abc import Sequence
import os
import re
import sys
import time
from typing import Any

from absl import flags
from absl import logging
import jax
from jax.experimental import topologies
import ml_collections
from ml_collections import config_flags

from vit_jax import checkpoint
from vit_jax.commands import cli
from vit_jax.configs import durations
from vit_jax.configs import models as model_configs
from vit_jax.configs import registry
from vit_jax.configs import resolved
from vit_jax.configs import spec
from vit_jax.configs import validate
from vit_jax.models import flops
from vit_jax.planning import compilation
from vit_jax.planning import memory_search
from vit_jax.planning import tables
from vit_jax.runtime import errors
from vit_jax.runtime import sharding
from vit_jax.runtime import storage
from vit_jax.training import resolve
from vit_jax.training import tasks

# Images; of the length of a run nothing depends that is planned.
_EPOCH = 1_000_000


def devices(
  topology: str | None, num_devices: int | None
) -> Sequence[jax.Device]:
  """Returns devices to compile for; starts JAX for nothing else.

  Args:
    topology: TPUs that need not be here, 'v5e:16x16'.
    num_devices: how many virtual CPU devices; None for those here.

  Raises:
    errors.UserError: if there is no such topology, or libtpu is not installed.
  """
  if topology and num_devices:
    raise errors.UserError('Give --topology or --devices, not both.')
  if num_devices:
    jax.config.update('jax_platforms', 'cpu')
    jax.config.update('jax_num_cpu_devices', num_devices)
  if not topology:
    return jax.devices()
  # So that libtpu looks for no TPU.
  os.environ['TPU_SKIP_MDS_QUERY'] = '1'
  os.environ['TPU_WORKER_HOSTNAMES'] = 'localhost'
  jax.config.update('jax_platforms', 'cpu')
  # A host has four chips; one chip alone is no part of it.
  options = {'chips_per_host_bounds': (1, 1, 1)} if _is_one(topology) else {}
  try:
    found = topologies.get_topology_desc(
      platform='tpu', topology_name=topology, **options
    )
  except (RuntimeError, ValueError) as e:
    if 'not installed' in str(e):
      raise errors.UserError(
        "--topology needs libtpu: pip install 'vit_jax[plan]'."
      ) from e
    reason = errors.first_line(e)
    raise errors.UserError(
      f'--topology={topology} is not known: {reason}. Try v5e:16x16, v5p:8x8x8'
      f' or v6e:4x4.'
    ) from e
  return found.devices


def _is_one(topology: str) -> bool:
  return set(re.split('[:x]', topology)[1:]) == {'1'}


def parse_mesh(text: str) -> dict[str, int]:
  """Returns the sizes of 'data:64,fsdp:4', 1 for what is left out.

  Raises:
    errors.UserError: if it is not written so.
  """
  sizes = {'data': 1, 'fsdp': 1, 'model': 1}
  for part in text.split(','):
    match = re.fullmatch(r'(data|fsdp|model):(-1|\d+)', part.strip())
    if not match:
      raise errors.UserError(
        f'--mesh={text} must be like data:64,fsdp:4, of data, fsdp and model.'
      )
    sizes[match[1]] = int(match[2])
  return sizes


def plan(
  config: ml_collections.ConfigDict,
  mesh: jax.sharding.Mesh,
  *,
  num_classes: int | None = None,
  limit: int | None = None,
  search: bool = True,
) -> str:
  """Returns what the step of a config takes on each device of a mesh.

  Args:
    config: settings, none open.
    mesh: of devices that need not be here.
    num_classes: of a data set that is not here.
    limit: bytes a device may hold; None where unknown: nothing is looked for.
    search: whether to look for settings that fit.

  Raises:
    errors.UserError: if the batch cannot be split, or the data is not known.
  """
  data = compilation.open_data(config, num_classes)

  def compile_setting(setting: memory_search.Setting) -> compilation.Program:
    changed = ml_collections.ConfigDict(config)
    for name, value in vars(setting).items():
      changed[name] = value
    print(f'Compiling {setting} ...', file=sys.stderr, flush=True)
    start = time.perf_counter()
    program = compilation.compile_step(changed, mesh, data)
    seconds = time.perf_counter() - start
    print(f'... {seconds:.0f} s.', file=sys.stderr, flush=True)
    return program

  device = mesh.devices.flat[0]
  setting = memory_search.Setting(
    config.batch, config.accum_steps, config.remat
  )
  program = compile_setting(setting)
  image_flops = flops.train_flops(
    tasks.make(config, mesh, data).model, data.image_shape
  )
  parts = [
    f'{config.model.model_name}, {config.dtype}, {setting}, on {mesh.size} x'
    f' {device.device_kind}, mesh {dict(mesh.shape)}',
    tables.memory(program, limit),
    tables.state(compilation.state(config, mesh, data), mesh),
    tables.work(
      program, mesh.size, image_flops, config.batch, flops.peak_flops(device)
    ),
    tables.collectives(program),
  ]
  if limit and search:
    found = memory_search.Search(
      compile_setting, limit, sharding.parts(mesh), {setting: program}
    )
    contrastive = spec.has_texts(config.model)
    parts.append(tables.search(found, setting, contrastive))
  return '\n\n'.join(filter(None, parts))


def model_of_weights(config: ml_collections.ConfigDict) -> dict[str, Any]:
  """Returns what pretrained weights say of the model, without a download.

  Raises:
    errors.UserError: if they are not here and nothing else says it.
  """
  name = config.pretrained
  paths = [name, f'{config.pretrained_dir}/{name}.npz']
  paths.append(f'{config.pretrained_dir}/{name}')
  for path in paths:
    if storage.is_address(path):
      continue
    if storage.local_path(path).exists():
      return resolve.what_weights_say(checkpoint.read(path))
  if entry := registry.entries().get(name):
    return {'model': model_configs.get_model_config(entry.model).to_dict()}
  raise errors.UserError(
    f'config.model is None, and the weights that say which model it is,'
    f' {name}, are not here: a plan downloads nothing. Set config.model, or'
    f' fetch them and give their path as --config.pretrained.'
  )


def main(argv: Sequence[str]) -> None:
  cli.refuse_words(argv)
  options = flags.FLAGS
  config = options.config
  config = resolved.complete(config)
  validate.validate(config)
  chosen = devices(options.topology, options.devices)
  sizes = parse_mesh(options.mesh) if options.mesh else config.mesh
  mesh = sharding.make_mesh(**sizes, devices=chosen)
  known = model_of_weights(config) if config.model is None else None
  limit = flops.memory_bytes(chosen[0])
  if options.memory_gib:
    limit = int(options.memory_gib * 2**30)
  logging.set_verbosity(logging.WARNING)  # How many images: none are read.
  print(
    plan(
      durations.in_steps(resolved.with_defaults(config, known), _EPOCH),
      mesh,
      num_classes=options.num_classes,
      limit=limit,
      search=options.search,
    )
  )


def define_flags() -> None:
  """Defines the flags; `main` has some of the same names."""
  config_flags.DEFINE_config_file(
    'config', None, 'Run file, see configs/.', lock_config=True
  )
  flags.DEFINE_string(
    'topology', None, 'TPUs to compile for: v5e:16x16, v5p:8x8x8, v6e:4x4.'
  )
  flags.DEFINE_integer(
    'devices', None, 'Virtual CPU devices to compile for.', lower_bound=1
  )
  flags.DEFINE_string(
    'mesh',
    None,
    'Instead of config.mesh: data:64,fsdp:4; what is left out is 1.',
  )
  flags.DEFINE_integer(
    'num_classes', None, 'Of a data set that is not here.', lower_bound=1
  )
  flags.DEFINE_float(
    'memory_gib', None, 'What a device may hold; default: what it can.'
  )
  flags.DEFINE_bool(
    'search', True, 'Look for the largest batch and the fewest parts that fit.'
  )
  flags.mark_flag_as_required('config')
