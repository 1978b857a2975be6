"""`vit-jax sweep`: its flags, and several hosts."""

import json
import sys

from absl import flags
from absl.testing import flagsaver
from processes import free_port
from processes import run
from processes import running
from processes import start_command
import pytest
from run_files import tiny

from vit_jax import sweep as sweep_lib
from vit_jax.commands import sweep
from vit_jax.configs import common
from vit_jax.runtime import errors


@pytest.mark.parametrize(
  'train_split, want',
  [
    ('train', ('train[:90%]', 'train[90%:]')),
    ('train[:98%]', ('train[:88%]', 'train[88%:98%]')),
    ('train[20%:]', ('train[20%:92%]', 'train[92%:]')),
    ('train[3%:5%]', ('train[3%:4%]', 'train[4%:5%]')),
    ('train[4%:5%]', None),
    ('train[:500]', None),
    ('train+test', None),
  ],
)
def test_the_last_tenth_of_training_is_held_out_by_default(train_split, want):
  config = common.with_sweep(tiny.get_config('/images'), (0.1,)).unlock()
  config.pp.train = train_split
  if want is None:
    with pytest.raises(errors.UserError, match=r"give both, train='train"):
      sweep_lib.held_out(config)
    config.sweep.train, config.sweep.holdout = want = ('a', 'b')
  assert sweep_lib.held_out(config) == want


def read_flags(*args):
  """Returns the config of `vit-jax sweep ARGS`."""
  argv = ['sweep.py', '--workdir=/tmp/x', *args]
  with pytest.MonkeyPatch.context() as patch, flagsaver.flagsaver():
    patch.setattr('sys.argv', argv)  # Where config_flags looks for names.
    sweep.define_flags()
    flags.FLAGS(argv)
    return sweep.read_config()


def test_any_run_file_can_be_swept():
  config = read_flags(
    '--config=configs/digits.py',
    '--base_lr=0.01,0.03',
    '--seeds=3,4',
    '--config.batch=16',
  )
  assert config.sweep.base_lr == (0.01, 0.03)
  assert config.sweep.seeds == (3, 4)
  assert config.batch == 16
  trial = sweep_lib._held_out(config, 0.01)
  assert (trial.trainer, trial.base_lr) == ('train', 0.01)
  assert (trial.pp.train, trial.pp.test) == ('train[:90%]', 'train[90%:]')
  lit = read_flags(
    '--config=configs/lit_folder.py:lit_l16ti,/data',
    '--base_lr=0.01',
    '--train=train',
    '--holdout=test',
  )
  trial = sweep_lib._held_out(lit, 0.01)
  assert (trial.trainer, trial.pp.test) == ('contrastive', 'test')


def test_flags_override_the_sweep_of_a_run_file():
  config = read_flags('--config=configs/sweep.py:b16,cifar10', '--seeds=7')
  assert config.sweep.base_lr == (0.001, 0.003, 0.01, 0.03)
  assert config.sweep.seeds == (7,)
  assert sweep_lib.held_out(config) == ('train[:98%]', 'train[98%:]')


@pytest.mark.parametrize(
  'args, message',
  [
    (
      ['digits.py'],
      '--base_lr must be given: the run file has no config.sweep',
    ),
    (['digits.py', '--base_lr=high'], '--base_lr=high must be numbers'),
    (
      ['digits.py', '--base_lr=1', '--seeds=0.5'],
      '--seeds=0.5 must be numbers',
    ),
    (['digits.py', '--base_lr=1', '--train=train'], 'give both'),
    (
      ['digits.py', '--base_lr=1', '--config.base_lr=1'],
      'config.base_lr would have no effect: a sweep tries the rates',
    ),
    (
      ['digits.py', '--base_lr=1', '--config.eval_every=1'],
      'config.eval_every would have no effect: a sweep',
    ),
    (['digits.py', '--base_lr=1', '--seeds=1,1'], 'seeds is .*, each once'),
    (['digits.py', '--base_lr=1,1'], 'base_lr is .*, each once'),
    (
      ['digits.py', '--base_lr=1', '--config.trainer=evaluate'],
      "config.trainer is 'evaluate': a sweep needs",
    ),
  ],
)
def test_wrong_flags_of_a_sweep_give_one_line(args, message):
  with pytest.raises(errors.UserError, match=message) as error:
    read_flags(f'--config=configs/{args[0]}', *args[1:])
  assert '\n' not in str(error.value)


@pytest.mark.slow
def test_main_refuses_the_run_file_of_a_sweep(tmp_path):
  result = run(
    'vit_jax.main',
    '--config=configs/sweep.py:b16,cifar10',
    f'--workdir={tmp_path}',
  )
  assert result.returncode == 1
  assert "'sweep', here one of ['contrastive'" in result.stderr
  assert 'vit-jax sweep runs sweeps' in result.stderr


# A sweep whose agreement of failed processes does not take a minute.
_MAIN = """
from vit_jax.commands import dispatch
from vit_jax.runtime import hosts
hosts._AGREEMENT_SECONDS = 5
dispatch.main()
"""


def two_processes(folder, workdir, *args):
  """Sweeps on two processes; returns what both leave."""
  address = f'127.0.0.1:{free_port()}'
  processes = [
    start_command(
      *(sys.executable, '-c', _MAIN, 'sweep'),
      f'--config=tests/run_files/tiny.py:{folder}',
      f'--workdir={workdir}',
      '--config.total_steps=4',
      '--config.warmup_steps=1',
      '--config.model.transformer.num_layers=1',
      *args,
      JAX_COORDINATOR_ADDRESS=address,
      JAX_NUM_PROCESSES='2',
      JAX_PROCESS_ID=str(i),
      JAX_DISABLE_MOST_OPTIMIZATIONS='1',
    )
    for i in range(2)
  ]
  with running(processes) as results:
    return results()


@pytest.mark.slow
def test_a_trial_that_fails_on_one_process_fails_on_all(image_folder, tmp_path):
  """Process 0 alone writes reports: it fails when the others are done."""
  (tmp_path / 'trials' / 'base_lr=0.001' / 'artifact').mkdir(parents=True)
  (tmp_path / 'trials' / 'base_lr=0.001' / 'report.html').mkdir()
  results = two_processes(
    image_folder, tmp_path, '--base_lr=0.001,0.01', '--config.report=True'
  )
  assert [r.returncode for r in results] == [0, 0], results
  for result in results:
    assert 'The trial with base_lr=0.001 failed' in result.stderr
    assert 'The best of (0.001, 0.01) is 0.01' in result.stderr
  result = json.loads((tmp_path / 'sweep.json').read_text())
  assert 'report.html' in result['trials'][0]['error']


@pytest.mark.slow
def test_a_process_that_fails_alone_in_a_trial_ends_all(image_folder, tmp_path):
  """Process 0 alone writes config.json, before the first step."""
  path = tmp_path / 'trials' / 'base_lr=0.001' / 'environment.json'
  path.mkdir(parents=True)
  results = two_processes(image_folder, tmp_path, '--base_lr=0.001,0.01')
  failed, waiting = results
  assert failed.returncode == 1, failed
  assert 'environment.json: Is a directory' in failed.stderr
  # With process 0 its coordinator ends: by our line, or by JAX's before it.
  assert waiting.returncode != 0, waiting
