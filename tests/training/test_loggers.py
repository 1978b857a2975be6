"""Loggers write to TensorBoard, Weights & Biases and MLflow offline."""

import json
import sys

from processes import wait_for
import pytest
from runs import tiny

from vit_jax import train
from vit_jax.runtime import errors
from vit_jax.training import loggers
from vit_jax.training import metrics

VALUES = {'loss': 0.5, 'lr': 0.25}


@pytest.fixture
def offline(monkeypatch, tmp_path):
  monkeypatch.setenv('WANDB_MODE', 'offline')
  monkeypatch.setenv('WANDB_DIR', str(tmp_path))
  monkeypatch.setenv('WANDB_SILENT', 'true')
  uri = f'sqlite:///{tmp_path}/mlflow.db'
  monkeypatch.setenv('MLFLOW_TRACKING_URI', uri)
  return tmp_path


def test_mlflow_logs_metrics_and_settings(offline):
  mlflow = pytest.importorskip('mlflow')
  for first_step in (1, 2):  # The second time it resumes.
    workdir = offline / 'run'
    workdir.mkdir(exist_ok=True)
    writer = metrics.Writer(
      workdir,
      first_step,
      loggers=['mlflow'],
      config={'pp': {'crop': 32}, 'long': 'x' * 9999},
    )
    writer.write(first_step, VALUES)
    writer.close()
  run_id = json.loads((workdir / 'loggers.json').read_text())['mlflow']
  client = mlflow.MlflowClient()
  run = client.get_run(run_id)
  assert run.data.params['pp.crop'] == '32'
  assert run.info.run_name == 'run'
  assert run.info.status == 'FINISHED'
  history = client.get_metric_history(run_id, 'lr')
  assert [(x.step, x.value) for x in history] == [(1, 0.25), (2, 0.25)]


def test_wandb_logs_metrics(offline):
  pytest.importorskip('wandb')
  (offline / 'run').mkdir()
  writer = metrics.Writer(
    offline / 'run', 1, loggers=['wandb'], config={'seed': 1}
  )
  writer.write(1, VALUES)
  writer.close()
  run_id = json.loads((offline / 'run' / 'loggers.json').read_text())['wandb']
  [file] = (offline / 'wandb').glob(f'offline-run-*-{run_id}/run-*.wandb')
  # Another process writes, and may end later.
  wait_for(lambda: b'loss' in file.read_bytes())


def test_run_continues_when_a_logger_fails(tmp_path, monkeypatch):
  class Failing:
    def write(self, step, values):
      raise ConnectionError('gone')

    def close(self):
      closed.append(1)
      raise ConnectionError('gone')

  closed = []
  monkeypatch.setattr(
    loggers,
    'make',
    lambda *args: [Failing(), loggers.TensorBoard(tmp_path, 1)],
  )
  writer = metrics.Writer(tmp_path, 1)
  writer.write(1, VALUES)
  writer.write(2, VALUES)
  writer.close()
  assert closed == [1]
  assert len((tmp_path / 'metrics.jsonl').read_text().splitlines()) == 2
  assert list(tmp_path.glob('events.out.tfevents.*'))


def test_a_logger_that_cannot_close_leaves_the_others(tmp_path, monkeypatch):
  closed = []

  class Logger:
    def __init__(self, name):
      self.name = name

    def close(self):
      closed.append(self.name)
      if self.name == 'first':
        raise RuntimeError('the server is gone')

  both = [Logger('first'), Logger('second')]
  monkeypatch.setattr(loggers, 'make', lambda *args: both)
  metrics.Writer(tmp_path, 1).close()
  assert closed[-1] == 'second'


def test_refuses_loggers_that_cannot_start(monkeypatch, tmp_path, image_folder):
  config = tiny(image_folder)
  config.loggers = ('tensorbord',)
  with pytest.raises(
    errors.UserError, match=r"is \('tensorbord',\), must be some of"
  ):
    train.train_and_evaluate(config, str(tmp_path))
  monkeypatch.setitem(sys.modules, 'wandb', None)
  with pytest.raises(errors.UserError, match=r"pip install 'vit_jax\[wandb\]'"):
    metrics.Writer(tmp_path, 1, loggers=['wandb'])

  def refuse(workdir, config):
    raise RuntimeError('no key\nmore')

  monkeypatch.setitem(loggers._SERVICES, 'wandb', refuse)
  with pytest.raises(errors.UserError, match='cannot start: no key$'):
    metrics.Writer(tmp_path, 1, loggers=['wandb'])


def test_runs_without_loggers(tmp_path):
  writer = metrics.Writer(tmp_path, 1, loggers=[])
  writer.write(1, VALUES)
  writer.close()
  assert [p.name for p in tmp_path.iterdir()] == ['metrics.jsonl']
