"""Every field of `Weights` survives every format, or its loss is announced."""

import dataclasses
import logging

import jax
from made import assert_same
from made import random_weights
from made import VIT
import numpy as np
import pytest
from runs import tiny
from runs import tiny_lit

from vit_jax import checkpoint
from vit_jax import train
from vit_jax.data import preprocessing
from vit_jax.weights import array_files
from vit_jax.weights import artifact
from vit_jax.weights import extras
from vit_jax.weights import formats
from vit_jax.weights import record as weights_lib
from vit_jax.weights import vocabularies

# No value is the default. A new field of either record must be added here, and
# then fails in each format that forgets it.
PREPROCESSING = {
  'size': (16, 24),
  'channels': 4,
  'mean': (0.1, 0.2, 0.3, 0.4),
  'std': (0.5, 0.6, 0.7, 0.8),
  'interpolation': 'bicubic',
  'exif': True,
  'resize_test': (23, 31),
}
WEIGHTS = {
  'class_names': ['$5_$10', 'a\nb', '"quoted"', 'ä l', ''],
  'loss': 'sigmoid',
  'task': 'multilabel',
  'thresholds': [0.1, 0.2, 0.3, 0.4, 0.6],
  'temperature': 1.5,
  'units': ['m', '%', '', 'µ', '$'],
  'info': {'dataset': 'x', 'step': 3, 'metrics': {'accuracy_test': 0.25}},
}
# Only LiT has a vocabulary, see below; the source is the file that was read.
NOT_OF_EVERY_MODEL = {'vocabulary', 'source'}


def all_fields(model=VIT, **changes):
  """Returns weights in which every field has an unusual value."""
  record = preprocessing.Preprocessing(**{**PREPROCESSING, **changes})
  weights = random_weights(
    model, shape=record.image_shape, num_classes=len(WEIGHTS['class_names'])
  )
  weights = dataclasses.replace(
    weights,
    **WEIGHTS,
    model={**model, 'model_name': 'mine', 'dtype': 'bfloat16'},
    preprocessing=record,
  )
  plain = weights_lib.Weights({}, None)
  names = {f.name for f in dataclasses.fields(weights)} - NOT_OF_EVERY_MODEL
  for name in names:
    assert getattr(weights, name) != getattr(plain, name), name
  default = preprocessing.Preprocessing()
  for field in dataclasses.fields(record):
    unusual = PREPROCESSING[field.name]
    assert unusual != getattr(default, field.name), field.name
  return weights


def assert_equal(weights, again):
  """Checks that no field differs, nor a bit of the arrays."""
  assert extras.lost(weights, again) == {}
  assert again.preprocessing == weights.preprocessing
  assert_same(weights.params, again.params)


RESIZES = [
  (23, 31),  # Neither transformers nor timm keeps the ratio of sides.
  (32, 48),
  40,
]


@pytest.mark.parametrize('resize', RESIZES)
def test_artifacts_keep_every_field(tmp_path, resize):
  weights = all_fields(resize_test=resize)
  artifact.save(tmp_path / 'x', weights)
  for path in ('x', 'x/model.npz', 'x/model.safetensors'):
    assert_equal(weights, checkpoint.read(tmp_path / path))


@pytest.mark.parametrize('resize', RESIZES)
@pytest.mark.parametrize('to', ['huggingface', 'timm'])
def test_converted_folders_keep_every_field(tmp_path, to, resize):
  weights = all_fields(resize_test=resize)
  formats.convert(weights, str(tmp_path / 'x'), to)
  for path in ('x', 'x/model.safetensors'):
    assert_equal(weights, checkpoint.read(tmp_path / path))
  # And again, through the other library.
  other = {'huggingface': 'timm', 'timm': 'huggingface'}[to]
  again = checkpoint.read(tmp_path / 'x')
  formats.convert(again, str(tmp_path / 'y'), other)
  assert_equal(weights, checkpoint.read(tmp_path / 'y'))


@pytest.mark.parametrize('to', ['huggingface', 'timm', 'npz'])
@pytest.mark.parametrize('model', [VIT, {**VIT, 'distillation': 'head'}])
def test_other_formats_have_the_temperature_in_the_head(tmp_path, to, model):
  weights = random_weights(model, size=32, num_classes=3)
  weights = dataclasses.replace(weights, temperature=0.25)
  path = str(tmp_path / ('x.npz' if to == 'npz' else 'x'))
  formats.convert(weights, path, to)
  again = checkpoint.read(path)
  assert again.temperature == 1
  image = np.random.default_rng(0).normal(size=(1, 32, 32, 3)).astype('float32')
  p, want = (
    weights_lib.to_predictions(x)(
      x.module().apply({'params': x.params}, image, train=False)
    )
    for x in (again, weights)
  )
  np.testing.assert_allclose(p, want, atol=1e-6)
  assert abs(float(p.max()) - 1 / 3) > 0.01


def test_artifacts_give_transformers_the_temperature_in_the_head(tmp_path):
  weights = random_weights(VIT, size=32, num_classes=3)
  weights = dataclasses.replace(weights, temperature=0.25)
  artifact.save(tmp_path, weights)
  arrays = array_files.read_safetensors(tmp_path / 'model.safetensors')
  np.testing.assert_array_equal(
    arrays['classifier.weight'], 4 * weights.params['head']['kernel'].T
  )
  assert checkpoint.read(tmp_path).temperature == 0.25


@pytest.mark.parametrize('to', ['huggingface', 'timm'])
def test_fields_of_libraries_are_not_kept_twice(tmp_path, to):
  """Our own key has no field that the library can hold."""
  weights = all_fields(size=(32, 32), resize_test=40)
  weights = dataclasses.replace(
    weights, class_names=[f'name {i}' for i in range(5)]
  )
  formats.convert(weights, str(tmp_path / 'x'), to)
  kept = formats.files.read_json(tmp_path / 'x' / 'config.json')[extras.KEY]
  assert kept['preprocessing'] == {'exif': True}
  ours = {
    'model',
    'preprocessing',
    'info',
    'thresholds',
    'temperature',
    'units',
  }
  of_transformers = {'loss', 'task'}
  assert set(kept) == ours | (of_transformers if to == 'timm' else set())


def test_convert_to_npz_warns_about_lost_fields(tmp_path, caplog):
  weights = all_fields()
  with caplog.at_level(logging.WARNING):
    formats.convert(weights, str(tmp_path / 'x.npz'), 'npz')
  [message] = [r.getMessage() for r in caplog.records]
  fields = {*PREPROCESSING, *WEIGHTS} - {'size', 'channels'}
  for name in (*fields, 'dtype'):
    assert name in message
  # Their arrays tell the size only where the patches are a square.
  again = checkpoint.read(tmp_path / 'x.npz')
  assert again.preprocessing.size is None
  assert again.preprocessing.channels == 4
  caplog.clear()
  formats.convert(again, str(tmp_path / 'y.npz'), 'npz')
  assert not caplog.records


def unusual(config):
  """Changes every setting of the preprocessing."""
  config = config.unlock()
  with config.ignore_type():
    config.pp.crop = (16, 24)
  config.pp.mean, config.pp.std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
  config.pp.exif, config.pp.interpolation = True, 'bicubic'
  config.loss = 'sigmoid'
  config.total_steps = config.eval_every = config.checkpoint_every = 1
  config.warmup_steps = 0
  config.report = False
  return config


@pytest.mark.slow
def test_workdirs_keep_every_field(image_folder, tmp_path):
  config = unusual(tiny(image_folder))
  config.pp.resize_test = (23, 31)
  train.train_and_evaluate(config, str(tmp_path))
  weights = checkpoint.read(tmp_path / 'artifact')
  for name, value in PREPROCESSING.items():
    if name not in ('channels', 'mean', 'std'):
      assert getattr(weights.preprocessing, name) == value, name
  assert weights.preprocessing.mean == (0.1, 0.2, 0.3)
  again = checkpoint.read(tmp_path)
  assert_equal(weights, again)
  assert_equal(weights, checkpoint.read(tmp_path / 'checkpoints' / '1'))


@pytest.mark.slow
def test_lit_workdirs_and_artifacts_keep_every_field(captions, tmp_path):
  config = unusual(tiny_lit(captions))
  train.train_and_evaluate(config, str(tmp_path / 'run'))
  weights = checkpoint.read(tmp_path / 'run' / 'artifact')
  again = checkpoint.read(tmp_path / 'run')
  name = vocabularies.name(weights.model, weights.vocabulary)
  for other in (weights, again):
    with open(captions / 'vocab.txt') as want, open(other.vocabulary) as have:
      assert have.read() == want.read()
  assert again.vocabulary == str(tmp_path / 'run' / name)
  same_file = dataclasses.replace(again, vocabulary=weights.vocabulary)
  assert_equal(weights, same_file)
  # No run of LiT sets these, but the artifact has a place for all.
  odd = dataclasses.replace(
    weights, class_names=['a\nb'], preprocessing=all_fields().preprocessing
  )
  odd = dataclasses.replace(
    odd,
    preprocessing=dataclasses.replace(
      odd.preprocessing, channels=3, mean=(0.1,), std=(0.2,)
    ),
  )
  artifact.save(tmp_path / 'odd', odd)
  for path in ('odd', 'odd/model.npz', 'odd/model.safetensors'):
    again = checkpoint.read(tmp_path / path)
    same_file = dataclasses.replace(again, vocabulary=odd.vocabulary)
    assert_equal(odd, same_file)
    assert again.vocabulary == str(tmp_path / 'odd' / name)


def test_at_size_scales_resize_test(tmp_path):
  weights = all_fields(size=(32, 32), resize_test=40)
  double = checkpoint.at_size(weights, (64, 64))
  assert double.preprocessing.resize_test == 80
  wide = checkpoint.at_size(weights, (32, 64))
  assert wide.preprocessing.resize_test == 80
  weights = all_fields(size=(32, 32), resize_test=(40, 48))
  wide = checkpoint.at_size(weights, (32, 64))
  assert wide.preprocessing.resize_test == (40, 96)
  assert wide.preprocessing.exif
  assert jax.tree.structure(wide.params) == jax.tree.structure(weights.params)


def test_at_size_rounds_resize_test_exactly():
  weights = all_fields(size=(24, 24), resize_test=27)
  resized = checkpoint.at_size(weights, (56, 56))
  assert (
    resized.preprocessing.resize_test == 63
  )  # In floats, 27 * (56 / 24) is more.
