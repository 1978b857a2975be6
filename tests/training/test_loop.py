"""The training loop: metrics, checkpoints, speed, traces."""

import json

from counting_loop import run
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from run_files import tiny

from vit_jax import checkpoint
from vit_jax import train
from vit_jax.configs import validate
from vit_jax.runtime import errors
from vit_jax.runtime import preemption
from vit_jax.runtime import sharding
from vit_jax.training import metrics


def rows(tmp_path):
  lines = (tmp_path / 'metrics.jsonl').read_text().splitlines()
  return [json.loads(line) for line in lines]


def test_saves_best_evaluation_between_checkpoints(tmp_path):
  run(tmp_path, accuracies=[0.2, 0.9, 0.4, 0.5], eval_every=5)
  steps = {int(p.name) for p in (tmp_path / 'checkpoints').iterdir()}
  assert steps == {10, 20}


def test_best_and_last_step_are_saved_without_checkpoints_between(tmp_path):
  run(
    tmp_path, accuracies=[0.2, 0.9, 0.4, 0.5], eval_every=5, checkpoint_every=0
  )
  steps = {int(p.name) for p in (tmp_path / 'checkpoints').iterdir()}
  assert steps == {10, 20}


def test_parameters_that_diverge_in_the_last_step_are_not_saved(tmp_path):
  """The metrics of a step are those before its update."""
  with pytest.raises(
    errors.UserError, match='diverged: at step 20 .*loss_test'
  ):
    run(tmp_path, accuracies=[0.1], eval_every=20, loss=float('nan'))
  assert not list((tmp_path / 'checkpoints').iterdir())


def test_diverged_parameters_are_not_evaluated(tmp_path):
  def step(state, batch, key):
    value = jnp.array(jnp.nan if int(state.step) > 2 else 1.0)
    return state.replace(step=state.step + 1), {'train_loss': value}

  with pytest.raises(errors.UserError, match='Training diverged: at step 5 '):
    run(tmp_path, step=step, accuracies=[], eval_every=5, progress_every=0)


@pytest.mark.parametrize('last', [20, 10])
def test_evaluation_that_a_stop_prevented_is_made_up_for(
  last, tmp_path, monkeypatch
):
  settings = {'eval_every': 5, 'checkpoint_every': 3, 'progress_every': 0}
  settings['total_steps'] = last
  with monkeypatch.context() as patch:
    stops = lambda _, step: step == 10
    patch.setattr(preemption.Preemption, 'requested', stops)
    with pytest.raises(SystemExit):
      run(tmp_path, accuracies=[0.2], **settings)
  assert [row['step'] for row in rows(tmp_path)] == [5]
  _, found = run(tmp_path, accuracies=[0.9, 0.4, 0.5], done=10, **settings)
  evaluated = [row for row in rows(tmp_path) if 'accuracy_test' in row]
  assert [row['step'] for row in evaluated] == list(range(5, last + 1, 5))
  assert evaluated[1]['accuracy_test'] == 0.9
  assert found == {'accuracy_test': 0.9 if last == 10 else 0.5}
  steps = {int(p.name) for p in (tmp_path / 'checkpoints').iterdir()}
  assert {10, last} <= steps  # The best one and the newest.


def test_fetches_all_metrics_one_interval_late(tmp_path):
  written = {}

  def step(state, batch, key):
    path = tmp_path / 'metrics.jsonl'
    number = int(state.step) + 1
    written[number] = rows(tmp_path) if path.exists() else []
    value = jnp.array(float(number))
    return state.replace(step=state.step + 1), {'train_loss': value}

  run(tmp_path, step=step, progress_every=5, checkpoint_every=11)
  last = lambda number: [row['step'] for row in written[number]][-1:]
  # Writes step 5 at step 10; a checkpoint first writes all pending metrics.
  assert [last(n) for n in (10, 11, 12, 16)] == [[], [5], [10], [10]]
  assert [(row['step'], row['train_loss']) for row in rows(tmp_path)] == [
    (5, 5.0),
    (10, 10.0),
    (15, 15.0),
    (20, 20.0),
  ]


class Device:
  """Runs steps of one second from a queue; the host does not wait."""

  def __init__(self, monkeypatch):
    self.now = self.free = 0.0  # Time, and when the queue will be empty.
    monkeypatch.setattr(metrics.time, 'perf_counter', lambda: self.now)

  def step(self, state, batch, key):
    self.now += 0.01  # Dispatching a step takes 10 ms.
    self.free = max(self.now, self.free) + 1
    return state.replace(step=state.step + 1), {'train_loss': Loss(self)}

  def work(self, seconds):
    self.now = self.free = max(self.now, self.free) + seconds


class Loss:
  """The loss of a step, ready when the step is complete."""

  def __init__(self, device):
    self.device, self.ready = device, device.free

  def block_until_ready(self):
    self.device.now = max(self.device.now, self.ready)
    return self

  def __float__(self):
    self.block_until_ready()
    return 1.0


@pytest.mark.parametrize('progress_every', [1, 7])
@pytest.mark.parametrize(
  'settings', [{}, {'eval_every': 5}, {'checkpoint_every': 4}]
)
def test_speed_counts_completed_steps(
  settings, progress_every, tmp_path, monkeypatch
):
  device = Device(monkeypatch)

  def accuracies():
    while True:
      device.work(100)
      yield 0.5

  run(
    tmp_path,
    device.step,
    accuracies(),
    progress_every=progress_every,
    **settings,
  )
  found = [row for row in rows(tmp_path) if 'train_loss' in row]
  speeds = [row['img_sec_train'] for row in found if 'img_sec_train' in row]
  assert len(speeds) >= len(found) // 2
  np.testing.assert_allclose(speeds, 8.0, rtol=0.03)  # A batch has 8 images.


@pytest.mark.parametrize('progress_every', [1, 0])
def test_does_not_save_diverged_state(tmp_path, progress_every):
  def step(state, batch, key):
    value = jnp.where(state.step >= 6, jnp.nan, 1.0)
    return state.replace(step=state.step + 1), {'train_loss': value}

  with pytest.raises(
    errors.UserError, match='newest whole checkpoint is of step 5'
  ):
    run(tmp_path, step=step, progress_every=progress_every, checkpoint_every=5)
  assert [p.name for p in (tmp_path / 'checkpoints').iterdir()] == ['5']


@pytest.mark.parametrize('last', [3, 99])
def test_profile_traces_chosen_steps(tmp_path, last):
  run(tmp_path, profile_steps=(2, last), total_steps=4)
  (folder,) = (tmp_path / 'profile' / 'plugins' / 'profile').iterdir()
  names = {p.name for p in folder.iterdir()}
  assert 'perfetto_trace.json.gz' in names
  (trace,) = folder.glob('*.xplane.pb')
  assert b'train' in trace.read_bytes()


@pytest.mark.parametrize('steps', [(3,), (0, 3), (5, 4)])
def test_refuses_wrong_profile_steps(steps):
  config = tiny.get_config('images')
  config.profile_steps = steps
  with pytest.raises(errors.UserError, match='config.profile_steps is'):
    validate.validate(config)


def test_places_next_batch_ahead():
  read = []

  def batches():
    for i in range(4):
      read.append(i)
      yield {'x': np.full((2, 1), i)}

  mesh = sharding.make_mesh()
  placed = sharding.put_batches(batches(), mesh, 2)
  assert int(next(placed)['x'][0, 0]) == 0
  assert read == [0, 1]
  assert [int(batch['x'][0, 0]) for batch in placed] == [1, 2, 3]


@pytest.mark.slow
def test_scanned_run_equals_unrolled_run(image_folder, tmp_path):
  def train_tiny(name, **settings):
    config = tiny.get_config(str(image_folder))
    config.model.transformer.dropout_rate = 0.0
    config.update(
      {'total_steps': 4, 'warmup_steps': 1, 'optimizer': 'sgd'}
      | {'stochastic_depth_rate': 0.0}
      | settings
    )
    workdir = tmp_path / name
    workdir.mkdir()
    state = train.train_and_evaluate(config, str(workdir))
    return state, checkpoint.read(workdir / 'artifact'), workdir

  _, want, _ = train_tiny('plain')
  state, got, workdir = train_tiny('scan', scan_layers=True, remat='full')
  assert 'encoderblock' in state.params['Transformer']
  assert not {'scan_layers', 'remat'} & set(got.model['transformer'])
  read = checkpoint.read(workdir)  # Reads the checkpoint, not the artifact.
  for params in (got.params, read.params):
    jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5),
      params,
      want.params,
    )
  # Fine-tuning may scan or unroll, and drop branches.
  start = str(workdir / 'artifact')
  _, tuned, _ = train_tiny(
    'tuned',
    pretrained=start,
    scan_layers=True,
    base_lr=1e-9,
  )
  np.testing.assert_allclose(
    tuned.params['Transformer']['encoderblock_1']['LayerNorm_0']['scale'],
    got.params['Transformer']['encoderblock_1']['LayerNorm_0']['scale'],
    atol=1e-6,
  )
