"""A text tower learns to fit a locked image tower."""

import json

import jax
from made import assert_same
import numpy as np
from processes import free_port
from processes import running
from processes import start
import pytest
from runs import tiny_lit

from vit_jax import checkpoint
from vit_jax import models
from vit_jax import train
from vit_jax.configs import arguments
from vit_jax.evaluation import retrieval
from vit_jax.runtime import preemption
from vit_jax.training import contrastive
from vit_jax.training import evaluate
from vit_jax.weights import artifact

SMALL_BERT = {
  'hidden_size': 16,
  'intermediate_dim': 32,
  'num_hidden_layers': 1,
  'num_attention_heads': 2,
  'vocab_size': 40,
}


def rows(workdir):
  lines = (workdir / 'metrics.jsonl').read_text().splitlines()
  return [json.loads(line) for line in lines]


def assert_image_tower_is_that_of(params, path):
  tower, want = dict(params['img']), checkpoint.load(path)
  tower.pop('head', None)
  want.pop('head')
  assert_same(jax.tree.map(np.asarray, tower), want)


def short(captions, **settings):
  """Returns a config of few steps with changed settings."""
  config = tiny_lit(captions)
  config.total_steps = 6
  config.warmup_steps = 1
  config.eval_every = 6
  config.checkpoint_every = 0
  config.update(settings)
  return config


def test_training_improves_retrieval(captions, lit_run):
  state, workdir = lit_run
  tests = [r for r in rows(workdir) if 'accuracy_test' in r]
  assert [r['step'] for r in tests] == [20, 40, 60]
  assert {r['examples_test'] for r in tests} == {15}
  for name in ('accuracy_test', 'text_to_image_test', 'top5_test'):
    assert tests[-1][name] > 0.9
  assert rows(workdir)[-2]['temperature'] == pytest.approx(
    float(np.exp(state.params['t'][0])), rel=1e-6
  )


def test_image_tower_keeps_weights_without_optimizer_state(captions, lit_run):
  state, _ = lit_run
  assert_image_tower_is_that_of(state.params, captions / 'vit.npz')
  assert np.abs(state.params['img']['head']['kernel']).min() > 0
  names = {
    jax.tree_util.keystr(path, simple=True, separator='/')
    for path, _ in jax.tree_util.tree_leaves_with_path(state.opt_state)
  }
  assert any('txt' in name for name in names)
  assert {n.rpartition('img/')[2] for n in names if 'img' in n} == {
    'head/bias',
    'head/kernel',
  }


@pytest.mark.slow
def test_sigmoid_loss_trains_without_image_head_and_decays_all(
  captions, tmp_path
):
  config = short(captions, loss='sigmoid', weight_decay_on='all')
  config.weight_decay = 1.0
  with config.unlocked(), config.ignore_type():
    config.model.out_dim = (None, 16)
    config.model.text_model = 'bert'
    config.model.text = {'config': SMALL_BERT}
  state = train.train_and_evaluate(config, str(tmp_path))
  assert_image_tower_is_that_of(state.params, captions / 'vit.npz')
  assert state.params['b'] != -10
  loaded = artifact.load(tmp_path / 'artifact')
  assert (loaded.loss, loaded.model['bias_init']) == ('sigmoid', -10)
  assert_same(dict(loaded.params), jax.tree.map(np.asarray, state.params))


@pytest.mark.parametrize('loss', ['softmax', 'sigmoid'])
def test_losses_equal_formulas_of_papers(captions, loss):
  config = short(captions, loss=loss, bias_init=-2.0, temperature_init=3.0)
  model = models.from_config(arguments.of_model(config))
  rng = np.random.RandomState(0)
  params = models.init_params(model, (16, 16, 3))
  params['img']['head']['kernel'] = rng.normal(size=(16, 12))
  batch = {
    'image': rng.uniform(-1, 1, (5, 16, 16, 3)).astype(np.float32),
    'tokens': rng.randint(0, 40, (5, 6)),
  }
  zimg, ztxt, _ = jax.jit(model.apply)(
    {'params': params}, images=batch['image'], tokens=batch['tokens']
  )
  config.model.text.dropout_rate = 0.0
  model = models.from_config(arguments.of_model(config))
  loss_fn = contrastive.make_loss_fn(model, lambda key, x: x, loss)
  got = jax.jit(loss_fn)(params, batch, jax.random.key(0))

  z = 3 * np.asarray(zimg, np.float64) @ np.asarray(ztxt, np.float64).T
  if loss == 'softmax':
    right = np.diag(z)
    to_text = np.log(np.exp(z).sum(1)) - right
    to_image = np.log(np.exp(z).sum(0)) - right
    want = (to_text.mean() + to_image.mean()) / 2
  else:
    signs = 2 * np.eye(5) - 1
    want = np.log(1 + np.exp(-signs * (z - 2))).sum() / 5
  assert float(got) == pytest.approx(want, rel=1e-5)


def retrieve(zimg, ztxt, tokens, loss='softmax', **out):
  out = {'t': np.float32([2.0])} | out
  return retrieval.retrieval(
    zimg.astype(np.float32), ztxt.astype(np.float32), tokens, out, loss
  )


@pytest.mark.parametrize('loss', ['softmax', 'sigmoid'])
@pytest.mark.parametrize('block', [4, 256])
def test_retrieval_compares_all_texts_with_all_images(monkeypatch, loss, block):
  monkeypatch.setattr(retrieval, '_ROWS', block)
  rng = np.random.RandomState(0)
  zimg, noise = rng.normal(size=(2, 11, 3))
  ztxt = zimg + 2 * noise
  tokens = np.arange(22).reshape(11, 2)
  got = retrieve(zimg, ztxt, tokens, loss, b=np.float32([-1.0]))
  z = 2 * zimg @ ztxt.T - 1
  for name, k, scores in (
    ('accuracy_test', 1, z),
    ('top5_test', 5, z),
    ('text_to_image_test', 1, z.T),
    ('text_to_image_top5_test', 5, z.T),
  ):
    ranks = (scores > np.diag(z)[:, None]).sum(1)
    assert 0 < got[name] == pytest.approx((ranks < k).mean())
  assert got['accuracy_test'] < got['top5_test'] < 1
  if loss == 'softmax':
    sums = np.log(np.exp(z).sum(1)) + np.log(np.exp(z).sum(0))
    want = (sums / 2 - np.diag(z)).mean()
  else:
    want = np.log(1 + np.exp(-(2 * np.eye(11) - 1) * z)).sum() / 11
  assert got['loss_test'] == pytest.approx(want, rel=1e-5)


def test_retrieval_joins_equal_texts_and_ties_score_chance():
  tokens = np.array([[1], [2], [1], [3]])
  z = np.eye(4)
  z[2] = z[0]
  assert retrieve(z, z, tokens)['accuracy_test'] == 1
  metrics = retrieve(np.ones((4, 4)), np.ones((4, 4)), np.arange(4)[:, None])
  assert metrics['accuracy_test'] == metrics['text_to_image_test'] == 0.25


@pytest.mark.slow
def test_resumed_run_equals_unbroken_run_bit_for_bit(
  captions, tmp_path, monkeypatch
):
  config = short(captions, eval_every=0, checkpoint_every=4)
  want = train.train_and_evaluate(config, str(tmp_path / 'unbroken'))
  with monkeypatch.context() as patch:
    patch.setattr(preemption.Preemption, 'requested', lambda _, step: step == 3)
    with pytest.raises(SystemExit, match='^0$'):
      train.train_and_evaluate(config, str(tmp_path / 'stopped'))
  # Resuming does not need the pretrained weights.
  config.pretrained = 'gone'
  got = train.train_and_evaluate(config, str(tmp_path / 'stopped'))
  assert int(got.step) == 6
  assert_same(
    *(jax.tree.map(np.asarray, (s.params, s.opt_state)) for s in (got, want))
  )


def test_evaluate_repeats_metrics_of_training(captions, lit_run):
  _, workdir = lit_run
  config = tiny_lit(captions)
  config.trainer = 'evaluate'
  config.batch_eval = 4
  got = evaluate.evaluate(config, str(workdir))
  last = [r for r in rows(workdir) if 'accuracy_test' in r][-1]
  assert got == pytest.approx(last, rel=1e-5)


@pytest.mark.slow
def test_two_hosts_equal_one_device(captions, tmp_path):
  """Compares each text with the images of all devices."""
  config = short(captions, total_steps=3, optimizer='sgd', base_lr=0.1)
  port = free_port()
  processes = [
    start(
      'vit_jax.main',
      f'--config=tests/run_files/tiny_lit.py:{captions}',
      f'--workdir={tmp_path / "four"}',
      '--config.mesh.fsdp=2',
      *(
        f'--config.{name}={config[name]}'
        for name in (
          'vocabulary', 'pretrained', 'total_steps', 'warmup_steps',
          'optimizer', 'base_lr',
        )
      ),
      devices=2,
      JAX_COORDINATOR_ADDRESS=f'127.0.0.1:{port}',
      JAX_NUM_PROCESSES='2',
      JAX_PROCESS_ID=str(i),
    )
    for i in range(2)
  ]  # fmt: skip
  with running(processes) as results:
    want = train.train_and_evaluate(config, str(tmp_path / 'one')).params
    for result in results():
      assert result.returncode == 0, result.stderr
  got = checkpoint.load(tmp_path / 'four' / 'artifact' / 'model.npz')
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), got, dict(want)
  )
  got_rows, want_rows = rows(tmp_path / 'four'), rows(tmp_path / 'one')
  for a, b in zip(got_rows, want_rows, strict=True):
    for name in b.keys() & {'train_loss', 'grad_norm', 'loss_test'}:
      assert a[name] == pytest.approx(b[name], rel=1e-4)
