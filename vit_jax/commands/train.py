"""Trains or evaluates the model of a config.

vit-jax train --config=configs/digits.py --workdir=/tmp/digits

`python -m vit_jax.main` with the same flags does the same.
"""

from collections.abc import Callable, Sequence
import json
from typing import Any

from absl import flags
from absl import logging
import jax
import ml_collections
from ml_collections import config_flags

from vit_jax import inference_time
from vit_jax import train
from vit_jax.commands import cli
from vit_jax.configs import resolved
from vit_jax.configs import unused
from vit_jax.configs import validate
from vit_jax.reporting import report
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import hosts
from vit_jax.runtime import onednn
from vit_jax.runtime import storage
from vit_jax.runtime import workdir as workdir_lib
from vit_jax.training import evaluate

Trainer = Callable[[ml_collections.ConfigDict, str], Any]


def define_flags() -> None:
  """Defines the flags of `vit-jax train`."""
  cli.define_config()
  flags.DEFINE_string(
    'workdir',
    None,
    'Folder for checkpoints, metrics, the artifact; or gs://BUCKET/FOLDER.',
  )
  flags.DEFINE_enum(
    'distributed',
    'auto',
    ['auto', 'on', 'off'],
    'Whether to run with other hosts; auto: in a cluster that JAX detects.',
  )
  flags.DEFINE_string(
    'coordinator_address', None, 'HOST:PORT of process 0, a free port there.'
  )
  flags.DEFINE_integer(
    'num_processes', None, 'Number of processes, over all hosts.', lower_bound=1
  )
  flags.DEFINE_integer(
    'process_id', None, 'Number of this process, from 0.', lower_bound=0
  )
  flags.DEFINE_integer(
    'heartbeat_timeout',
    100,
    'Seconds until a silent process counts as lost and the others stop.',
    lower_bound=1,
  )
  flags.mark_flag_as_required('workdir')


def read_config(
  config: ml_collections.ConfigDict | None = None,
) -> ml_collections.ConfigDict:
  """Returns settings, by default those of the flags, checked.

  Raises:
    errors.UserError: if one of them cannot work.
  """
  config = flags.FLAGS.config if config is None else config
  if config.trainer == 'inference_time':
    inference_time.check(config)
    return config
  given = config_flags.get_override_values(flags.FLAGS['config'])
  config = resolved.steps_first(config, given)
  config = validate.validate(config)
  unused.refuse(config, given)
  return config


def launch(trainer: Trainer, config: ml_collections.ConfigDict) -> None:
  """Joins the other hosts and runs a trainer in the workdir of the flags.

  Raises:
    errors.UserError: if the workdir cannot be written or hosts cannot be joined,
      or what the trainer raises.
  """
  options = flags.FLAGS
  folder = storage.make_workdir(options.workdir)
  _multiply_as_before(config, workdir_lib.at(options.workdir))
  hosts.start(
    options.distributed,
    coordinator_address=options.coordinator_address,
    num_processes=options.num_processes,
    process_id=options.process_id,
    heartbeat_timeout=options.heartbeat_timeout,
  )
  logging.info(
    'Process %d of %d, devices: %s',
    jax.process_index(),
    jax.process_count(),
    jax.local_devices(),
  )
  with hosts.failing_together():
    hosts.check_shared(folder)
    trainer(config, options.workdir)


def _multiply_as_before(
  config: ml_collections.ConfigDict, workdir: workdir_lib.Workdir
) -> None:
  """Starts Python again if the run, or its config, multiplies otherwise on CPUs."""
  wanted = config.get('cpu_products', 'auto')
  if wanted == 'auto' and workdir.config.is_file():
    saved = files.read_json(workdir.config)
    wanted = saved.get('cpu_products', 'auto')
  if config.dtype == 'bfloat16':
    onednn.restart(wanted)


def train_and_report(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Trains; writes the page of the run if `config.report` says so."""
  train.train_and_evaluate(config, workdir)
  if config.report and not jax.process_index():
    # One of several hosts cannot predict on all devices.
    path = report.of_workdir(workdir, predicts=jax.process_count() == 1)
    logging.info('The report is %s', path)


def evaluate_and_print(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Evaluates the newest checkpoint; prints the metrics as JSON."""
  metrics = evaluate.evaluate(config, workdir)
  if not jax.process_index():
    print(json.dumps(metrics, indent=2))


TRAINERS: dict[str, Trainer] = {  # By config.trainer.
  'train': train_and_report,
  'contrastive': train_and_report,
  'evaluate': evaluate_and_print,
  'inference_time': inference_time.inference_time,
}


def main(argv: Sequence[str]) -> None:
  cli.refuse_words(argv)
  config = read_config()
  if config.trainer not in TRAINERS:
    raise errors.UserError(
      f'config.trainer is {config.trainer!r}, here one of {sorted(TRAINERS)}.'
      f' vit-jax sweep runs sweeps.'
    )
  launch(TRAINERS[config.trainer], config)
