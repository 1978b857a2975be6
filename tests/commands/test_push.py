"""A run is pushed to a stand-in of the hub, and read from there again."""

import dataclasses
import functools
import json
import sys

import hub_server
import huggingface_hub
from made import random_weights
from made import VIT
import numpy as np
from pictures import make_image_folder
from processes import call_command
import pytest
from runs import tiny

from vit_jax import checkpoint
from vit_jax import train
from vit_jax.reporting import model_card
from vit_jax.runtime import environment
from vit_jax.weights import record as weights_lib


@pytest.fixture
def hub(monkeypatch):
  with hub_server.serve() as handler:
    api = functools.partial(huggingface_hub.HfApi, endpoint=handler.url)
    download = functools.partial(
      huggingface_hub.snapshot_download, endpoint=handler.url
    )
    monkeypatch.setattr(huggingface_hub, 'HfApi', api)
    monkeypatch.setattr(huggingface_hub, 'snapshot_download', download)
    monkeypatch.setenv('HF_TOKEN', 'good')
    yield handler


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  root = tmp_path_factory.mktemp('pushed')
  config = tiny(make_image_folder(root / 'images'))
  config.total_steps = config.eval_every = 2
  config.base_lr, config.warmup_steps = 0.01, 0
  train.train_and_evaluate(config, str(root / 'run'))
  return root / 'run'


@pytest.mark.slow
def test_a_pushed_run_is_read_again(hub, run, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  done = call_command('push', str(run), 'user/tiny', '--license=mit')
  assert done.returncode == 0, done.stderr
  assert f'{run} is at {hub.url}/user/tiny' in done.stdout
  files = hub.repositories['user/tiny']['main']
  assert {'README.md', 'curve.png', 'config.json', 'model.safetensors'} <= set(
    files
  )
  want = checkpoint.read(run / 'artifact')
  again = checkpoint.read('hf://user/tiny')
  assert again.class_names == want.class_names
  assert again.preprocessing == want.preprocessing
  flat = weights_lib.flatten(again.params)
  for name, x in weights_lib.flatten(want.params).items():
    np.testing.assert_array_equal(x, flat[name])


@pytest.mark.slow
def test_the_card_says_how_the_model_was_made(hub, run):
  call_command('push', str(run), 'user/tiny', '--license=mit')
  content = hub.repositories['user/tiny']['main']['README.md'].decode()
  header = huggingface_hub.ModelCard(content).data
  assert header.license == 'mit'
  assert header.pipeline_tag == 'image-classification'
  metrics = json.loads((run / 'artifact' / 'config.json').read_text())
  metrics = metrics['info']['metrics']
  found = {m.metric_type: m.metric_value for m in header.eval_results}
  assert found['accuracy'] == metrics['accuracy_test']
  for text in ('| training | 36 |', '| test | 15 |', 'curve.png', 'jax: '):
    assert text in content
  assert str(run.parent) not in content.replace(str(run), '')


@pytest.mark.slow
def test_a_branch_is_made(hub, run):
  done = call_command('push', str(run), 'user/other', '--revision=v1')
  assert done.returncode == 0, done.stderr
  branches = hub.repositories['user/other']
  assert 'model.safetensors' in branches['v1']
  assert not branches['main']


@pytest.mark.slow
def test_a_refusal_says_what_to_do(hub, run, monkeypatch):
  monkeypatch.setenv('HF_TOKEN', 'bad')
  done = call_command('push', str(run), 'user/tiny')
  assert done.returncode == 1
  assert 'user/tiny cannot be pushed: ' in done.stderr
  assert 'HF_TOKEN' in done.stderr
  assert not hub.repositories


def test_addresses_that_are_no_weights_give_one_line():
  for command in (
    ['push', 'https://localhost:1/x.npz', 'a/b'],
    ['report', 'https://localhost:1/run'],
  ):
    done = call_command(*command)
    assert done.returncode == 1
    assert 'Traceback' not in done.stderr
    assert 'localhost' in done.stderr


@pytest.mark.parametrize('words', [(), ('a',), ('a', 'b'), ('a', 'b/c/d')])
def test_two_words_are_needed(words):
  done = call_command('push', *words)
  assert done.returncode == 1
  assert 'USER/NAME' in done.stderr


def test_class_names_are_escaped():
  assert model_card._escaped('a|b\n*c* &lt;') == r'a\|b \*c\* \&lt;'


def test_the_card_of_other_weights_does_not_say_that_they_were_trained_here(
  tmp_path,
):
  weights = random_weights(VIT, size=32, num_classes=3)
  for step, want in (
    ({}, False),
    ({'step': 7, 'metrics': {'examples_test': 10000}}, True),
  ):
    weights = dataclasses.replace(weights, info=step)
    model_card.write(tmp_path, weights, 'me/x', library='transformers')
    text = (tmp_path / 'README.md').read_text()
    assert ('trained with vit_jax' in text) == want
  assert '| examples_test | 10000 |' in text


@pytest.mark.parametrize(
  'words, want',
  [
    (['vit-jax train', '--x=1'], ['vit-jax', 'train', '--x=1']),
    (['vit_jax.main', '--x=1'], ['python', '-m', 'vit_jax.main', '--x=1']),
    (['/a b/run.py'], ['run.py']),
    (['python', '-m', 'vit_jax.main'], ['python', '-m', 'vit_jax.main']),
  ],
)
def test_the_command_of_a_run_can_be_pasted(words, want, monkeypatch):
  monkeypatch.setattr(sys, 'argv', words)
  assert environment.describe()['command'] == want
