"""Arrays over devices, by the rules; eight devices equal one."""

import json

import jax
import jax.numpy as jnp
import meshes
import numpy as np
from processes import run
import pytest

from vit_jax import checkpoint
from vit_jax import models
from vit_jax.models import blocks
from vit_jax.planning import compilation
from vit_jax.runtime import sharding
from vit_jax.training import optimizers
from vit_jax.training import stages
from vit_jax.training import state as state_lib


def test_parameters_and_momentum_are_sharded_by_the_rules():
  mesh = sharding.make_mesh()
  model = models.get_model('testing', num_classes=4)
  tx = optimizers.create_optimizer(lambda _: 0.1)
  params = models.abstract_params(model, (16, 16, 3))
  like = stages.abstract_state(params, tx, mesh)
  specs = {
    jax.tree_util.keystr(path, simple=True, separator='/'): x.sharding.spec
    for path, x in jax.tree_util.tree_leaves_with_path(like)
  }
  P = jax.sharding.PartitionSpec
  wanted = {
    'MlpBlock_0/Dense_0/kernel': P('fsdp', 'model'),
    'MlpBlock_0/Dense_1/kernel': P('model', 'fsdp'),
    'query/kernel': P('fsdp', 'model', None),
    'value/kernel': P('fsdp', 'model', None),
    'out/kernel': P('model', None, 'fsdp'),
    'embedding/kernel': P(None, None, None, 'fsdp'),
    'head/kernel': P('fsdp', 'model'),
    'head/bias': P(None),
    'cls': P(None, None, None),
  }
  for name, spec in wanted.items():
    found = [s for path, s in specs.items() if path.endswith(name)]
    assert len(found) == 2, name  # The parameter and its momentum.
    assert set(found) == {spec}, name


def test_the_order_of_tokens_on_gpus_sends_nothing_between_devices():
  """Some versions of XLA cannot split it, and would gather the whole batch."""
  meshes = ('8,1,1', '2,4,1', '2,2,2')
  printed = run('tests.order_of_tokens', *meshes, devices=8).stdout
  for name, row in json.loads(printed).items():
    without, with_order = row['sent']
    assert sum(without.values()) > 0
    assert with_order.get('all-gather', 0) <= without.get('all-gather', 0), name
    assert sum(with_order.values()) <= sum(without.values()), name
    assert row['error'] < 1e-4


@pytest.mark.parametrize('scan', [False, True])
def test_the_optimizer_is_sharded_as_its_parameters_or_replicated(scan):
  model = models.get_model('ti16', num_classes=4)
  params = models.abstract_params(model, (32, 32, 3))
  params = jax.eval_shape(blocks.stack, params) if scan else params
  axes = ('data', 'fsdp', 'model')
  mesh = jax.sharding.AbstractMesh((1, 2, 2), axes)
  tx = optimizers.create_optimizer(lambda _: 0.1, optimizer='adafactor')
  state = state_lib.TrainState(
    jax.ShapeDtypeStruct((), 'int32'), params, jax.eval_shape(tx.init, params)
  )
  placed = stages.place(mesh, state)
  _, factored, momentum, _ = placed.opt_state
  same = jax.tree.map(
    lambda p, m: p.sharding == m.sharding and p.shape == m.shape,
    placed.params,
    momentum.ema,
  )
  assert all(jax.tree.leaves(same))
  moments = jax.tree.leaves((factored.v_row, factored.v_col))
  assert all(x.sharding.is_fully_replicated for x in moments)
  # The rows and columns that are kept of a kernel, and nothing of its shape.
  name = 'encoderblock' if scan else 'encoderblock_0'
  rows, columns, whole = (
    tree['Transformer'][name]['MlpBlock_0']['Dense_0']['kernel'].shape
    for tree in (factored.v_row, factored.v_col, factored.v)
  )
  depth = (12,) if scan else ()
  assert {rows, columns} == {(*depth, 192), (*depth, 768)}
  assert whole == (*depth, 1)


@pytest.mark.parametrize('name', ['b16', 'r_ti16', 'mixer_b16', 'lit_l16ti'])
def test_large_parameters_are_sharded(name):
  classes = {} if name.startswith('lit') else {'num_classes': 1000}
  model = models.get_model(name, **classes)
  params = models.abstract_params(model, (224, 224, 3))
  axes = ('data', 'fsdp', 'model')
  mesh = jax.sharding.AbstractMesh((1, 4, 1), axes)
  on_device = compilation.device_bytes(sharding.place(mesh, params))
  mesh = jax.sharding.AbstractMesh((1, 1, 1), axes)
  in_all = compilation.device_bytes(sharding.place(mesh, params))
  assert on_device < 0.27 * in_all


def test_stacked_layers_are_sharded_as_the_layers_are():
  P = jax.sharding.PartitionSpec
  mesh = jax.sharding.AbstractMesh((1, 2, 2), ('data', 'fsdp', 'model'))
  params = {'MlpBlock_0': {'Dense_0': {'kernel': jnp.zeros((6, 8, 8))}}}
  (placed,) = jax.tree.leaves(sharding.place(mesh, params))
  assert placed.sharding.spec == P(None, 'fsdp', 'model')


@pytest.mark.slow
def test_eight_devices_equal_one(image_folder, tmp_path):
  result = run(
    'tests.meshes', str(image_folder), str(tmp_path), *meshes.MESHES, devices=8
  )
  assert result.returncode == 0, result.stderr
  held = json.loads(result.stdout)
  meshes.train(image_folder, tmp_path / 'one')

  def metrics(name):
    lines = (tmp_path / name / 'metrics.jsonl').read_text().splitlines()
    return [json.loads(line) for line in lines]

  for name in meshes.MESHES:
    for a, b in zip(metrics(name), metrics('one'), strict=True):
      assert a.keys() == b.keys()
      for key in ('train_loss', 'grad_norm', 'accuracy_test', 'loss_test'):
        if key in a:
          assert a[key] == pytest.approx(b[key], rel=1e-5), (name, key)
    got, want = (
      checkpoint.load(tmp_path / n / 'artifact' / 'model.npz')
      for n in (name, 'one')
    )
    jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), got, want
    )
  # Biases and the like, half of a percent of a real model, are not split.
  for kind in ('params', 'opt_state'):
    data, fsdp, model = (held[name][kind] for name in meshes.MESHES)
    assert fsdp < 0.56 * data
    assert model < 0.42 * data
