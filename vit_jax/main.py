"""Trains or evaluates what a config says.

python -m vit_jax.main --config=configs/digits.py --workdir=/tmp/digits
"""

from collections.abc import Sequence
import os
import pathlib

from absl import flags
from absl import logging
import jax
from ml_collections import config_flags

from vit_jax import cli
from vit_jax import contrastive
from vit_jax import errors
from vit_jax import evaluate
from vit_jax import inference_time
from vit_jax import train
from vit_jax.configs import validate

_CONFIG = config_flags.DEFINE_config_file(
  'config', None, 'Run file, see configs/.', lock_config=True
)
_WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Folder for checkpoints, metrics and the artifact.'
)
_DISTRIBUTED = flags.DEFINE_enum(
  'distributed',
  'auto',
  ['auto', 'on', 'off'],
  'Whether to run with the other hosts of a cluster; auto: where one is seen.',
)

_TRAINERS = {  # By config.trainer and whether the model is of images and texts.
  ('train', False): train.train_and_evaluate,
  ('evaluate', False): evaluate.evaluate,
  ('contrastive', True): contrastive.train_and_evaluate,
  ('evaluate', True): contrastive.evaluate,
  ('inference_time', False): inference_time.inference_time,
}

# Set for each task of several, by JAX's users, srun and Open MPI.
_CLUSTER_VARIABLES = ('JAX_COORDINATOR_ADDRESS', 'COORDINATOR_ADDRESS')
_CLUSTER_SIZES = ('SLURM_STEP_NUM_TASKS', 'OMPI_COMM_WORLD_SIZE')


def is_cluster(environment: dict[str, str]) -> bool:
  """Whether the environment is that of one of several hosts."""
  if any(environment.get(name) for name in _CLUSTER_VARIABLES):
    return True
  if any(int(environment.get(name) or 1) > 1 for name in _CLUSTER_SIZES):
    return True
  return ',' in environment.get('TPU_WORKER_HOSTNAMES', '')


def start_distributed(mode: str) -> None:
  """Joins the other hosts where they are seen or asked for."""
  if mode == 'on' or (mode == 'auto' and is_cluster(dict(os.environ))):
    try:
      jax.distributed.initialize(
        num_processes=_int(os.environ.get('JAX_NUM_PROCESSES')),
        process_id=_int(os.environ.get('JAX_PROCESS_ID')),
      )
    except (ValueError, RuntimeError) as e:
      raise errors.UserError(
        f'The other hosts cannot be joined: {e}. Set JAX_COORDINATOR_ADDRESS,'
        f' JAX_NUM_PROCESSES and JAX_PROCESS_ID, or --distributed=off.'
      ) from e


def _int(text: str | None) -> int | None:
  return int(text) if text else None


def run() -> None:
  """Runs the trainer that the config names."""
  config, workdir = _CONFIG.value, _WORKDIR.value
  if config.trainer == 'inference_time':
    inference_time.check(config)
  else:
    validate.validate(config)
  if '://' in workdir:
    raise errors.UserError(
      f'--workdir={workdir} is an address. Give a folder; mount the bucket.'
    )
  try:
    pathlib.Path(workdir).mkdir(parents=True, exist_ok=True)
  except OSError as e:
    raise errors.UserError(
      f'--workdir={workdir} cannot be made: {e.strerror}.'
    ) from e
  start_distributed(_DISTRIBUTED.value)
  logging.info(
    'Process %d of %d, devices: %s',
    jax.process_index(),
    jax.process_count(),
    jax.local_devices(),
  )
  has_text = 'text_model' in (config.get('model') or {})
  _TRAINERS[config.trainer, has_text](config, workdir)


def main(argv: Sequence[str]) -> None:
  del argv
  run()


if __name__ == '__main__':
  flags.mark_flags_as_required(['config', 'workdir'])
  cli.run(main)
