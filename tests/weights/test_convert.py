"""`vit-jax convert`, and the formats inside an artifact."""

import json

from golden_files import GOLDEN
import jax
from made import assert_same
from made import HYBRID
from made import random_weights
from made import TOKEN
from made import VIT
import numpy as np
from processes import call_command
import pytest

from vit_jax import checkpoint
from vit_jax import predictor
from vit_jax.runtime import errors
from vit_jax.weights import artifact
from vit_jax.weights import formats


@pytest.mark.parametrize('config', [VIT, VIT | {'classifier': 'gap'}, HYBRID])
def test_artifact_safetensors_hold_the_same_parameters(tmp_path, config):
  weights = random_weights(config)
  artifact.save(tmp_path / 'artifact', weights)
  again = checkpoint.read(tmp_path / 'artifact')
  assert_same(weights.params, again.params)
  assert again.preprocessing == weights.preprocessing
  # The other file alone has the same parameters, in another naming.
  (tmp_path / 'artifact' / 'model.npz').unlink()
  config = json.loads((tmp_path / 'artifact' / 'config.json').read_text())
  del config['format']
  (tmp_path / 'artifact' / 'config.json').write_text(json.dumps(config))
  assert_same(weights.params, checkpoint.load(tmp_path / 'artifact'))


def test_convert_command_refuses_existing_folder(tmp_path):
  args = ('convert', str(TOKEN), str(tmp_path / 'x'))
  result = call_command(*args, '--to=huggingface')
  assert result.returncode == 0, result.stderr
  assert '32,778 parameters, 10 classes, 32x32 pixels' in result.stdout
  assert_same(checkpoint.load(tmp_path / 'x'), checkpoint.load(TOKEN))
  result = call_command(*args, '--to=timm')
  assert result.returncode == 1
  assert f'{tmp_path}/x exists' in result.stderr
  assert 'Traceback' not in result.stderr


def test_convert_to_float16_rounds_parameters(tmp_path):
  weights = checkpoint.read(TOKEN)
  for dtype in ('float32', 'float16'):
    formats.convert(weights, str(tmp_path / f'{dtype}.npz'), 'npz', dtype)
  with np.load(tmp_path / 'float16.npz') as arrays:
    assert {str(x.dtype) for x in arrays.values()} == {'float16'}
  got = checkpoint.load(tmp_path / 'float16.npz')
  for x, want in zip(
    jax.tree.leaves(got), jax.tree.leaves(weights.params), strict=True
  ):
    assert x.dtype == np.float32
    np.testing.assert_array_equal(x, want.astype(np.float16))
  with pytest.raises(
    errors.UserError, match='^dtype=float16 is only for to=npz'
  ):
    formats.convert(weights, str(tmp_path / 'x'), 'timm', 'float16')


def test_convert_warns_of_numbers_too_small_for_float16(tmp_path, caplog):
  weights = checkpoint.read(TOKEN)
  bias = weights.params['head']['bias']
  weights.params['head']['bias'] = np.full_like(bias, 1e-9)
  weights.params['head']['kernel'] = weights.params['head']['kernel'] * 0
  with caplog.at_level('WARNING', logger='absl'):
    formats.convert(weights, str(tmp_path / 'full.npz'), 'npz')
    assert 'too small' not in caplog.text
    formats.convert(weights, str(tmp_path / 'half.npz'), 'npz', 'float16')
  assert 'the numbers of head/bias are too small for float16' in caplog.text


def test_convert_asks_for_unknown_image_size(tmp_path):
  nonsquare = GOLDEN / 'vit_nonsquare.npz'
  args = ('convert', str(nonsquare), str(tmp_path / 'x'), '--to=timm')
  result = call_command(*args)
  assert '--image_size=HEIGHT,WIDTH' in result.stderr
  result = call_command(*args, '--image_size=32,48')
  assert result.returncode == 0, result.stderr
  assert checkpoint.read(tmp_path / 'x').image_shape == (32, 48, 3)


def test_predict_refuses_zero_or_missing_head(tmp_path):
  params = checkpoint.load(TOKEN)
  params['head'] = jax.tree.map(np.zeros_like, params['head'])
  checkpoint.save(params, tmp_path / 'zero.npz')
  weights = checkpoint.read(tmp_path / 'zero.npz')
  with pytest.raises(errors.UserError, match='head of these weights is all'):
    predictor.Predictor(weights).predict('image.jpg')
  weights = checkpoint.read(GOLDEN / 'hf_vit_model')
  with pytest.raises(errors.UserError, match='have no head'):
    predictor.Predictor(weights).predict('image.jpg')


def test_another_size_is_refused_of_unknown_weights(tmp_path):
  args = ('convert', str(GOLDEN / 'lit_bert.npz'), str(tmp_path / 'x.npz'))
  result = call_command(*args, '--to=npz', '--image_size=64,64')
  assert result.returncode == 1
  assert 'do not tell which model they belong to' in result.stderr
  assert not list(tmp_path.iterdir())
