"""Weights of images: read from tables, checked, and used in the training loss alone."""

import csv
import itertools
import json
import math

import cv2
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from processes import call_command
import pytest
from runs import rows as metric_rows
from runs import tiny

from vit_jax import train
from vit_jax.configs import labels
from vit_jax.data import datasets
from vit_jax.data import pipeline
from vit_jax.data import sources
from vit_jax.data import subsets
from vit_jax.data.augmentation import mixing
from vit_jax.data.augmentation import transforms
from vit_jax.data.rows import row_weights
from vit_jax.data.rows import table_files
from vit_jax.models import losses
from vit_jax.runtime import errors
from vit_jax.training import same_data
from vit_jax.training import update


def write(tmp_path, weights):
  """Writes a table with a weight for each of its training images."""
  made = [
    {'image': f'{i}.png', 'label': i % 3, 'split': 'train', 'weight': weight}
    for i, weight in enumerate(weights)
  ]
  made += [
    {**row, 'image': f'test_{row["image"]}', 'split': 'test'} for row in made
  ]
  path = tmp_path / 'table.csv'
  with path.open('w') as f:
    writer = csv.DictWriter(f, made[0])
    writer.writeheader()
    writer.writerows(made)
  return path


def by_name(source):
  names = [name.rpartition('/')[2] for name in source.names()]
  return dict(zip(names, row_weights.of_source(source).tolist(), strict=True))


def test_each_row_has_its_weight(tmp_path):
  path = write(tmp_path, [0, 1, 2.5, '4', 1e-3, 0])
  source = sources.get_source(str(path), 'train')
  want = dict(zip('012345', [0, 1, 2.5, 4, 1e-3, 0], strict=True))
  assert by_name(source) == pytest.approx(
    {f'{k}.png': x for k, x in want.items()}
  )
  assert row_weights.facts(source) == pytest.approx(
    {'lowest': 0, 'highest': 4, 'mean': 7.501 / 6, 'zero': 2}
  )
  assert row_weights.scaled(source).mean() == pytest.approx(1)
  few = subsets.few_shots(source, 1)
  assert row_weights.of_source(few).tolist() == [
    by_name(source)[n.rpartition('/')[2]] for n in few.names()
  ]


@pytest.mark.parametrize(
  ('weights', 'want'),
  [
    ([1, -0.5, 1], "row 2 has the weight '-0.5', must be at least 0"),
    ([1, 1, 'much'], "row 3 has the weight 'much', which is not a number"),
    ([1, 1, None], 'row 3 has no weight: it is missing, empty, or'),
    ([1, 1, 'inf'], "row 3 has the weight 'inf', which is not a number"),
    ([0, 0, 0], 'All 3 training images have the weight 0'),
  ],
)
def test_bad_weights_are_named(weights, want, tmp_path):
  config = tiny(write(tmp_path, weights))
  with pytest.raises(errors.UserError, match=want) as e:
    datasets.open_splits(datasets.with_data(config))
  assert '\n' not in str(e.value)
  config.columns.weight = ''
  assert datasets.open_splits(datasets.with_data(config)).train.weights is None


def test_a_label_is_no_weight(tmp_path):
  path = write(tmp_path, [-1, 1, 2])
  columns = table_files.Columns(target='weight', task=labels.REGRESSION)
  source = sources.get_source(str(path), 'train', columns=columns)
  assert row_weights.of_source(source) is None


def test_changed_weights_are_other_data(tmp_path):
  prints = [
    same_data.fingerprint(sources.get_source(str(write(tmp_path, x)), 'train'))
    for x in ([1, 1, 1], [1, 1, 1], [1, 1, 2])
  ]
  assert prints[0] == prints[1]
  assert prints[0]['sha256'] != prints[2]['sha256']


class Model(nn.Module):
  @nn.compact
  def __call__(self, x, train):
    return nn.Dense(3)(x.reshape(len(x), -1))


def test_weights_multiply_the_loss_of_each_image():
  rng = np.random.default_rng(0)
  images = jnp.asarray(rng.random((4, 2, 2, 1)), jnp.float32)
  marks, weights = jnp.array([0, 1, 2, 1]), jnp.array([0.0, 1.0, 2.0, 1.0])
  params = Model().init(jax.random.key(0), images, train=True)['params']
  batch, key = {'image': images, 'label': marks}, jax.random.key(1)

  def loss(batch):
    loss_fn = update.make_loss_fn(Model(), lambda _, x: x)
    return float(loss_fn(params, batch, key))

  logits = Model().apply({'params': params}, images, train=False)
  each = losses.softmax_cross_entropy(logits, marks)
  got = loss({**batch, 'weight': weights})
  assert got == pytest.approx(float((each * weights).mean()), rel=1e-5)
  # Weight 2 counts an image twice, weight 0 leaves it out.
  twice = jnp.array([1, 2, 2, 3])
  repeated = {'image': images[twice], 'label': marks[twice]}
  assert got == pytest.approx(loss(repeated), rel=1e-5)


def test_mixed_images_have_mixed_weights():
  images = jnp.zeros((4, 2, 2, 1)).at[0].set(1)
  batch = {
    'image': images,
    'label': jnp.arange(4) % 3,
    'weight': jnp.array([8.0, 0.0, 0.0, 0.0]),
  }
  model, mix = Model(), mixing.Mix(3, mixup=1.0)
  params = model.init(jax.random.key(0), images, train=True)['params']
  key = jax.random.key(1)

  def loss(logits, targets):
    del logits
    return targets[:, 0] + 10 * targets[:, 1] + 100 * targets[:, 2]

  loss_fn = update.make_loss_fn(model, lambda _, x: x, loss, mix)
  mixed, targets = mix(jax.random.fold_in(key, 2), images, batch['label'])
  # The first image alone has ones, and a weight: shares of it are shares of 8.
  want = jnp.mean(8 * mixed[:, 0, 0, 0] * loss(None, targets))
  assert float(loss_fn(params, batch, key)) == pytest.approx(float(want))


def test_each_batch_has_the_weights_of_its_images(tmp_path):
  path = write(tmp_path, [1, 2, 6, 1, 2, 6])  # Classes 0, 1, 2, ...
  for i, name in enumerate([*'012345']):
    pixels = np.full((20, 20, 3), i, np.uint8)
    cv2.imwrite(str(tmp_path / f'{name}.png'), pixels)
  (tmp_path / '2.png').write_bytes(b'')  # The next image stands in for it.
  config = tiny(path)
  config.on_bad_image = 'skip'
  data = datasets.open_splits(datasets.with_data(config))
  assert data.test.weights is None
  batches = pipeline.train_batches(
    data.train,
    transforms.TrainImage(size=(16, 16)),
    batch_size=3,
    seed=0,
    first_step=0,
  )
  for batch in itertools.islice(batches, 4):
    want = np.array([1, 2, 6])[batch['label']] / 3
    np.testing.assert_allclose(batch['weight'], want, rtol=1e-6)
    assert batch['weight'].dtype == np.float32


@pytest.mark.slow
def test_a_run_uses_and_states_them(image_folder, tmp_path):
  made = [
    {
      'image': str(path),
      'label': path.parent.name,
      'split': path.parts[-3],
      'weight': 1 + i % 5,
    }
    for i, path in enumerate(sorted(image_folder.rglob('*.jpg')))
  ]
  assert made
  path = tmp_path / 'table.jsonl'
  path.write_text('\n'.join(map(json.dumps, made)))
  config = tiny(path)
  config.total_steps = config.progress_every = config.eval_every = 1
  train.train_and_evaluate(config, str(tmp_path / 'run'))
  losses = [
    x['train_loss'] for x in metric_rows(tmp_path / 'run') if 'train_loss' in x
  ]
  assert losses[0] != pytest.approx(math.log(3))  # The head starts at zero.
  state = json.loads((tmp_path / 'run' / 'dataset.json').read_text())
  assert state['config.pp.train']['weights']['highest'] == 5
  text = call_command('data', str(path)).stdout
  assert 'weights  1 to 5, mean' in text
