"""Starts several processes of one run, and reads how they end."""

from processes import free_port
from processes import start

# Batches that 1 to 3 processes can share; 15 test images are not a multiple of
# any of it. Momentum in float32: rounding hides what must be equal.
SETTINGS = (
  '--config.model.transformer.num_layers=1',
  '--config.batch=12',
  '--config.batch_eval=12',
  '--config.accum_steps=1',
  '--config.optimizer=sgd',
  '--config.optim_dtype=float32',
  '--config.base_lr=0.1',
  '--config.total_steps=36',
  '--config.progress_every=1',
  '--config.eval_every=6',
  '--config.checkpoint_every=6',
)


def with_flags(count, *args):
  """Starts processes that are told by flags which they are."""
  address = f'127.0.0.1:{free_port()}'
  return [
    start(
      *args,
      f'--coordinator_address={address}',
      f'--num_processes={count}',
      f'--process_id={i}',
    )
    for i in range(count)
  ]


def with_variables(count, *args):
  """As `with_flags`, by JAX's environment variables."""
  address = f'127.0.0.1:{free_port()}'
  return [
    start(
      *args,
      JAX_COORDINATOR_ADDRESS=address,
      JAX_NUM_PROCESSES=str(count),
      JAX_PROCESS_ID=str(i),
    )
    for i in range(count)
  ]


def with_slurm(count, *args):
  """Starts processes in the environment that srun gives its tasks."""
  return [
    start(
      *args,
      SLURM_JOB_ID='4242',
      SLURM_STEP_NODELIST='127.0.0.1',
      SLURM_STEP_NUM_NODES='1',
      SLURM_STEP_NUM_TASKS=str(count),
      SLURM_NTASKS=str(count),
      SLURM_PROCID=str(i),
      SLURM_LOCALID=str(i),
      JAX_COORDINATOR_PORT=str(port),
    )
    for port in [free_port()]
    for i in range(count)
  ]


def assert_codes(ended, codes):
  """Checks exit codes; shows the output of every process that has another one."""
  texts = [
    f'Process {i} ended with {result.returncode}:\n{result.stderr[-5000:]}'
    for i, (result, code) in enumerate(zip(ended, codes, strict=True))
    if result.returncode != code
  ]
  assert not texts, '\n'.join(texts)


def last_line(result):
  return result.stderr.strip().splitlines()[-1]
