"""Trains or evaluates what a config says.

python -m vit_jax.main --config=configs/digits.py --workdir=/tmp/digits
"""

if __name__ == '__main__':
  from vit_jax import exits

  exits.on_interrupt()  # Before the imports, which take seconds.

  from vit_jax import huge_pages

  huge_pages.use()  # Likewise: it would repeat them.

from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags
from absl import logging
import jax
from ml_collections import config_flags

from vit_jax import cli
from vit_jax import contrastive
from vit_jax import errors
from vit_jax import evaluation
from vit_jax import hosts
from vit_jax import inference_time
from vit_jax import storage
from vit_jax import train
from vit_jax.configs import durations
from vit_jax.configs import validate

_CONFIG = config_flags.DEFINE_config_file(
  'config', None, 'Run file, see configs/.', lock_config=True
)
_WORKDIR = flags.DEFINE_string(
  'workdir',
  None,
  'Folder for checkpoints, metrics, the artifact; or gs://BUCKET/FOLDER.',
)
_DISTRIBUTED = flags.DEFINE_enum(
  'distributed',
  'auto',
  ['auto', 'on', 'off'],
  'Whether to run with the other hosts of a cluster; auto: where one is seen.',
)
_COORDINATOR_ADDRESS = flags.DEFINE_string(
  'coordinator_address', None, 'HOST:PORT of process 0, a free port there.'
)
_NUM_PROCESSES = flags.DEFINE_integer(
  'num_processes', None, 'Of all hosts together.', lower_bound=1
)
_PROCESS_ID = flags.DEFINE_integer(
  'process_id', None, 'Of this process, from 0.', lower_bound=0
)
_HEARTBEAT_TIMEOUT = flags.DEFINE_integer(
  'heartbeat_timeout',
  100,
  'Seconds after which a silent process counts as lost, and the others stop.',
  lower_bound=1,
)

TRAINERS = {  # By config.trainer and whether the model is of images and texts.
  ('train', False): train.train_and_evaluate,
  ('evaluate', False): evaluation.evaluate,
  ('contrastive', True): contrastive.train_and_evaluate,
  ('evaluate', True): contrastive.evaluate,
  ('inference_time', False): inference_time.inference_time,
}


def run(trainers: Mapping[tuple[str, bool], Any] = TRAINERS) -> None:
  """Runs the trainer that the config names.

  Args:
    trainers: those there are, as `TRAINERS`.

  Raises:
    errors.UserError: if it is none of them.
  """
  config, workdir = _CONFIG.value, _WORKDIR.value
  if config.trainer == 'inference_time':
    inference_time.check(config)
  else:
    given = config_flags.get_override_values(flags.FLAGS['config'])
    config = durations.steps_first(config, given)
    validate.validate(config)
  has_text = 'text_model' in (config.get('model') or {})
  if (config.trainer, has_text) not in trainers:
    raise errors.UserError(
      f'config.trainer is {config.trainer!r}, here one of'
      f' {sorted({name for name, _ in trainers})}. Sweeps are run by python -m'
      f' vit_jax.sweep, and nothing else is.'
    )
  folder = storage.make_workdir(workdir)
  hosts.start(
    _DISTRIBUTED.value,
    coordinator_address=_COORDINATOR_ADDRESS.value,
    num_processes=_NUM_PROCESSES.value,
    process_id=_PROCESS_ID.value,
    heartbeat_timeout=_HEARTBEAT_TIMEOUT.value,
  )
  logging.info(
    'Process %d of %d, devices: %s',
    jax.process_index(),
    jax.process_count(),
    jax.local_devices(),
  )
  with hosts.failing_together():
    hosts.check_shared(folder)
    trainers[config.trainer, has_text](config, workdir)


def main(argv: Sequence[str]) -> None:
  cli.refuse_words(argv)
  run()


if __name__ == '__main__':
  flags.mark_flags_as_required(['config', 'workdir'])
  cli.run(main)
