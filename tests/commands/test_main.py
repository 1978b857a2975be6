"""The command lines as a user meets them."""

import json
import pathlib
import re
import signal

import cv2
import numpy as np
from processes import call_command
from processes import run
import pytest
from runs import arguments
from runs import flat
from runs import rows
from runs import signalled

from vit_jax import checkpoint

AUGMENTED = (  # All that is random, on the host and on the device.
  '--config.pp.augmentation=medium1',
  '--config.pp.cutmix=1.0',
  '--config.pp.color_jitter=(0.4, 0.4, 0.4, 0.1)',
  '--config.pp.random_erasing=0.2',
)
LONG = (
  *AUGMENTED,
  '--config.model.transformer.num_layers=1',
  '--config.total_steps=160',
  '--config.progress_every=1',
  '--config.eval_every=100',
  '--config.checkpoint_every=20',
)


def interrupted(folder, workdir, *signals_and_steps):
  """Trains, sent each signal after its step; returns the exit codes."""
  codes = []
  for number, step in signals_and_steps:
    result = run(*signalled(folder, workdir, number, step, *LONG))
    codes.append(result.returncode)
    if number == signal.SIGTERM:
      assert 'the same command continues' in result.stderr
  result = run(*arguments(folder, workdir, *LONG))
  assert result.returncode == 0, result.stderr
  return codes


@pytest.mark.slow
def test_killed_runs_end_with_the_bits_of_an_unbroken_one(
  image_folder, tmp_path
):
  result = run(*arguments(image_folder, tmp_path / 'unbroken', *LONG))
  assert result.returncode == 0, result.stderr
  kill, term = signal.SIGKILL, signal.SIGTERM
  workdir = tmp_path / 'interrupted'
  codes = interrupted(image_folder, workdir, (kill, 1), (term, 33), (kill, 61))
  assert codes == [-kill, 0, -kill]

  got, want = flat(workdir), flat(tmp_path / 'unbroken')
  assert got.keys() == want.keys()
  for key, value in want.items():
    np.testing.assert_array_equal(got[key], value, err_msg=key)
  losses, want_losses = (
    [(r['step'], r['train_loss']) for r in rows(path) if 'train_loss' in r]
    for path in (workdir, tmp_path / 'unbroken')
  )
  assert losses == want_losses
  assert [step for step, _ in losses] == list(range(1, 161))


def train(folder, workdir, *overrides):
  """Trains in this process; returns what `run` does."""
  _, *words = arguments(folder, workdir, *overrides)
  return call_command('train', *words)


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """A finished run: (images, workdir)."""
  from pictures import make_image_folder

  root = tmp_path_factory.mktemp('finished')
  folder = make_image_folder(root / 'images')
  result = run(*arguments(folder, root / 'run', '--config.total_steps=60'))
  assert result.returncode == 0, result.stderr
  assert 'Forward pass' in result.stderr
  assert 'encoderblock/MlpBlock_0' in result.stderr
  return folder, root / 'run'


def test_a_run_leaves_metrics_events_and_an_artifact(finished):
  _, workdir = finished
  names = {p.name for p in (workdir / 'artifact').iterdir()}
  assert names == {
    'model.npz',
    'model.safetensors',
    'config.json',
    'preprocessor_config.json',
    'labels.txt',
  }
  labels = (workdir / 'artifact' / 'labels.txt').read_text()
  assert labels == 'blue\ngreen\nred\n'
  assert list(workdir.glob('events.out.tfevents.*'))
  metrics = rows(workdir)
  assert [r['step'] for r in metrics if 'train_loss' in r] == list(
    range(5, 61, 5)
  )
  tests = [r for r in metrics if 'accuracy_test' in r]
  assert [r['step'] for r in tests] == [20, 40, 60]
  # 15 images in batches of 8: padded, and counted once.
  assert {r['examples_test'] for r in tests} == {15}
  assert tests[-1]['accuracy_test'] > 0.8


def test_evaluating_alone_gives_the_same_numbers(finished):
  folder, workdir = finished
  result = train(
    folder,
    workdir,
    '--config.trainer=evaluate',
    '--config.total_steps=60',
    '--config.batch_eval=4',
  )
  assert result.returncode == 0, result.stderr
  last = [r for r in rows(workdir) if 'accuracy_test' in r][-1]
  got = json.loads(result.stdout)
  assert got == json.loads((workdir / 'evaluation.json').read_text())
  for name in ('accuracy_test', 'top5_test', 'loss_test', 'examples_test'):
    assert got[name] == pytest.approx(last[name], rel=1e-5)


def test_a_finished_run_ends_at_once_with_the_same_model(finished):
  folder, workdir = finished
  before = flat(workdir)
  result = train(folder, workdir, '--config.total_steps=60')
  assert result.returncode == 0, result.stderr
  after = flat(workdir)
  for key, value in before.items():
    np.testing.assert_array_equal(after[key], value)


def predict(workdir, *args):
  return call_command('predict', f'--model={workdir}/artifact', *args)


def test_predicting_agrees_with_evaluation(finished):
  folder, workdir = finished
  files = sorted(str(p) for p in (folder / 'test').rglob('*.jpg'))
  result = predict(workdir, '--json', '--top_k=2', '--batch=4', *files)
  assert result.returncode == 0, result.stderr
  lines = [json.loads(line) for line in result.stdout.splitlines()]
  assert [line['image'] for line in lines] == files
  correct = 0
  for line in lines:
    best, second = line['predictions']
    assert 1 >= best['probability'] >= second['probability'] >= 0
    correct += best['class'] == pathlib.Path(line['image']).parent.name
  last = [r for r in rows(workdir) if 'accuracy_test' in r][-1]
  assert correct / len(files) == pytest.approx(last['accuracy_test'])

  result = predict(workdir, files[0])
  assert files[0] in result.stdout
  assert '%' in result.stdout


@pytest.mark.slow
def test_fine_tuning_from_an_artifact_at_another_size(finished, tmp_path):
  folder, workdir = finished
  result = train(
    folder,
    tmp_path,
    '--config.total_steps=5',
    f'--config.pretrained={workdir}/artifact/model.npz',
    '--config.pp.crop=(32,16)',
    '--config.head_bias_init=-5.0',
  )
  assert result.returncode == 0, result.stderr
  old = checkpoint.load(workdir / 'artifact' / 'model.npz')
  new = checkpoint.load(tmp_path / 'artifact' / 'model.npz')
  shape = lambda p: p['Transformer']['posembed_input']['pos_embedding'].shape
  assert (shape(old), shape(new)) == ((1, 7, 16), (1, 9, 16))
  assert new['head']['bias'].max() < -4
  kernel = lambda p: p['embedding']['kernel']
  assert np.abs(kernel(new) - kernel(old)).max() < 0.05


WRONG = {
  'a misspelt setting': (['--config.base_lrr=1'], 'Did you mean "base_lr"'),
  'a nested one': (['--config.pp.crp=1'], 'Did you mean "crop"'),
  'not a number': (['--config.base_lr=high'], "'high'"),
  'a misspelt choice': (
    ['--config.decay_type=cosin'],
    r"'cosin', must be one of .* Did you mean 'cosine'",
  ),
  'out of range': (
    ['--config.batch=0'],
    'config.batch is 0, must be at least 1',
  ),
  'accumulation': (['--config.accum_steps=3'], 'must divide config.batch, 8'),
  'the mesh': (['--config.mesh.data=3'], 'product must be the 1 devices'),
  'a flag': (['--confg=x'], "Unknown command line flag 'confg'"),
  'no weights': (
    ['--config.pretrained=nothing', '--config.pretrained_dir=/nowhere'],
    '/nowhere/nothing.npz is missing',
  ),
  'another data set': (
    ['--config.dataset=/no/such'],
    'no such folder here',
  ),
  'divergence': (
    [
      '--config.optimizer=sgd',
      '--config.base_lr=1e30',
      '--config.grad_norm_clip=0',
    ],
    r'diverged: at step \d+ .*There is no whole checkpoint yet',
  ),
  'an address': (
    ['--workdir=ftp://host/run'],
    'a folder or gs://BUCKET/FOLDER',
  ),
  'no such cluster': (['--distributed=on'], 'other hosts cannot be joined'),
  'a mesh of none': (['--config.mesh.fsdp=0'], 'product must be the 1 devices'),
  'nothing to evaluate': (['--config.trainer=evaluate'], 'has no checkpoints'),
}


@pytest.mark.parametrize(
  'case',
  [
    pytest.param(case, marks=[pytest.mark.slow] if case == 'divergence' else [])
    for case in WRONG
  ],
)
def test_a_mistake_gives_one_line_and_exit_code_1(case, image_folder, tmp_path):
  overrides, message = WRONG[case]
  result = train(image_folder, tmp_path / 'run', *overrides)
  assert result.returncode == 1, result.stderr
  assert 'Traceback' not in result.stderr
  line = result.stderr.strip().splitlines()[-1]
  assert line.startswith('vit-jax train: ')
  assert re.search(message, line), line
  assert not (tmp_path / 'run' / 'artifact').exists()


def test_steps_of_the_command_line_come_before_epochs_of_the_run_file(tmp_path):
  result = call_command(
    'train',
    '--config=configs/cifar10_scratch.py',
    f'--workdir={tmp_path}',
    '--config.dataset=digits',
    '--config.total_steps=3',
    '--config.profile_steps=(5,6)',
  )
  assert 'config.total_steps is 3: no step would be traced' in result.stderr


def test_predicting_what_is_no_image_or_no_artifact(finished, tmp_path):
  _, workdir = finished
  (tmp_path / 'a.jpg').write_text('no image')
  for args, message in (
    ((str(tmp_path / 'a.jpg'),), 'a.jpg cannot be decoded'),
    ((str(tmp_path / 'b.jpg'),), 'b.jpg cannot be read: there is no such file'),
    ((), 'Name at least one image or folder'),
  ):
    result = predict(workdir, *args)
    assert result.returncode == 1
    assert 'Traceback' not in result.stderr
    assert message in result.stderr
  cv2.imwrite(str(tmp_path / 'c.png'), np.zeros((9, 9, 3), np.uint8))
  result = predict(tmp_path, str(tmp_path / 'c.png'))
  assert result.returncode == 1
  assert 'no checkpoint file or folder' in result.stderr


def test_a_workdir_that_cannot_be_made(image_folder, tmp_path):
  (tmp_path / 'file').write_text('')
  result = train(image_folder, tmp_path / 'file' / 'run')
  assert result.returncode == 1
  assert 'cannot be made: Not a directory' in result.stderr
