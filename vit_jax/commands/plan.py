"""What a training step takes on hardware that need not be here, and what fits.

vit-jax plan --config=configs/h14_imagenet.py --topology=v5e:16x16 \
  --mesh=data:64,fsdp:4 --config.dtype=bfloat16 --config.batch=4096

Compiles the step that the config trains. It downloads nothing. It opens a data set
that is here, unless --num_classes is given, and reads weights only for a teacher or if
config.model is None. TPUs need
`pip install 'vit_jax[plan]'`. With --devices=N it compiles for N virtual CPU devices,
whose activations are float32; with neither, for the devices here. Attention is by
XLA unless config.attention says otherwise.
"""

from collections.abc import Sequence
import functools
import re
import sys

from absl import flags
from absl import logging

from vit_jax.commands import cli
from vit_jax.configs import validate
from vit_jax.models import flops
from vit_jax.planning import plan
from vit_jax.runtime import errors
from vit_jax.runtime import sharding


def parse_mesh(text: str) -> dict[str, int]:
  """Returns the sizes of 'data:64,fsdp:4', 1 for what is left out.

  Raises:
    errors.UserError: if it is not written so.
  """
  sizes, given = {'data': 1, 'fsdp': 1, 'model': 1}, set[str]()
  for part in text.split(','):
    match = re.fullmatch(r'(data|fsdp|model):(-1|\d+)', part.strip())
    if not match or match[1] in given:
      raise errors.UserError(
        f'--mesh={text} must be like data:64,fsdp:4, of data, fsdp and model,'
        f' each once.'
      )
    given.add(match[1])
    sizes[match[1]] = int(match[2])
  return sizes


def main(argv: Sequence[str]) -> None:
  cli.refuse_words(argv)
  options = flags.FLAGS
  if options.topology and options.devices:
    raise errors.UserError('Give --topology or --devices, not both.')
  config = validate.validate(options.config)
  devices = plan.devices(options.topology, options.devices)
  sizes = parse_mesh(options.mesh) if options.mesh else config.mesh
  mesh = sharding.make_mesh(**sizes, devices=devices)
  limit = flops.memory_bytes(devices[0])
  if options.memory_gib is not None:
    limit = int(options.memory_gib * 2**30)
  logging.set_verbosity(logging.WARNING)  # How many images: none are read.
  text = plan.plan(
    plan.resolve_here(config, mesh, options.num_classes),
    limit=limit,
    search=options.search,
    say=functools.partial(print, file=sys.stderr, flush=True),
  )
  print(text)


def define_flags() -> None:
  """Defines the flags; some have the names of those of `main`."""
  cli.define_config()
  flags.DEFINE_string(
    'topology', None, 'TPUs to compile for: v5e:16x16, v5p:8x8x8, v6e:4x4.'
  )
  flags.DEFINE_integer(
    'devices', None, 'Virtual CPU devices to compile for.', lower_bound=1
  )
  flags.DEFINE_string(
    'mesh',
    None,
    'Replaces config.mesh: data:64,fsdp:4; axes that are left out have size 1.',
  )
  flags.DEFINE_integer(
    'num_classes',
    None,
    'Classes of a data set that is not here.',
    lower_bound=1,
  )
  flags.DEFINE_float(
    'memory_gib',
    None,
    'Memory of a device in GiB; default: all of it.',
    lower_bound=1e-6,
  )
  flags.DEFINE_bool(
    'search', True, 'Look for the largest batch and the fewest parts that fit.'
  )
