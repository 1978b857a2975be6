"""DINOv2 and DINOv3 of transformers."""

import json

from golden_files import GOLDEN
from golden_files import golden_json
import live
from made import assert_same
from made import copied
from made import random_weights
from made import VIT
import numpy as np
import pytest

from vit_jax import checkpoint
from vit_jax.configs import spec
from vit_jax.runtime import errors
from vit_jax.weights import adaptation
from vit_jax.weights import array_files
from vit_jax.weights import families
from vit_jax.weights import formats
from vit_jax.weights import resized_positions

NAMES = ('hf_dinov2', 'hf_dinov2_registers', 'hf_dinov3')


@pytest.mark.parametrize('name', NAMES)
def test_outputs_equal_transformers_at_any_size(name):
  weights = checkpoint.read(GOLDEN / name)
  with np.load(GOLDEN / name / 'io.npz') as io:
    got = live.output(weights, io['inputs'])
    np.testing.assert_allclose(got, io['outputs'], atol=2e-6)
    images = io['larger_inputs']
    larger = adaptation.at_size(weights, images.shape[1:3])
    got = live.output(larger, images)
    np.testing.assert_allclose(got, io['larger_outputs'], atol=2e-6)
  if name == 'hf_dinov3':  # It has no position embeddings.
    assert_same(larger.params, weights.params)


@pytest.mark.parametrize('name', NAMES)
def test_files_come_back(tmp_path, name):
  weights = checkpoint.read(GOLDEN / name)
  formats.convert(weights, str(tmp_path / 'x'), 'huggingface')
  want = array_files.read_safetensors(GOLDEN / name)
  have = array_files.read_safetensors(tmp_path / 'x')
  mask = {key for key in want if key.endswith('mask_token')}
  # DINOv2 can be without one; the others are incomplete to transformers.
  assert want.keys() - have.keys() == (mask if name == 'hf_dinov2' else set())
  assert have.keys() <= want.keys()
  for key, x in have.items():
    np.testing.assert_array_equal(
      x, 0 * want[key] if key in mask else want[key], err_msg=key
    )
  config = json.loads((tmp_path / 'x' / 'config.json').read_text())
  original = golden_json(f'{name}/config.json')
  different = {k for k in config.keys() & original if config[k] != original[k]}
  assert different <= {'use_mask_token', 'id2label', 'label2id'}
  again = checkpoint.read(tmp_path / 'x')
  assert again.model == weights.model
  assert_same(again.params, weights.params)


@pytest.mark.parametrize('name', ['hf_dinov2', 'hf_dinov2_registers'])
def test_npz_and_back(tmp_path, name):
  weights = checkpoint.read(GOLDEN / name)
  formats.convert(weights, str(tmp_path / 'x.npz'), 'npz')
  again = checkpoint.read(tmp_path / 'x.npz')
  assert_same(again.params, weights.params)
  assert again.spec.pooling == weights.spec.pooling


def test_an_npz_holds_no_rotations(tmp_path):
  weights = checkpoint.read(GOLDEN / 'hf_dinov3')
  with pytest.raises(errors.UserError, match='does not hold rotations .*timm'):
    formats.convert(weights, str(tmp_path / 'x.npz'), 'npz')
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('name', ['hf_dinov2_registers', 'hf_dinov3'])
def test_timm_and_back(tmp_path, name):
  weights = checkpoint.read(GOLDEN / name)
  formats.convert(weights, str(tmp_path / 'x'), 'timm')
  formats.convert(
    checkpoint.read(tmp_path / 'x'), str(tmp_path / 'y'), 'huggingface'
  )
  with np.load(GOLDEN / name / 'io.npz') as io:
    got = live.output(checkpoint.read(tmp_path / 'y'), io['inputs'])
    np.testing.assert_allclose(got, io['outputs'], atol=2e-6)


@pytest.mark.parametrize(
  'settings, message',
  [
    ({'proj_bias': False}, 'has proj_bias=False of DINOv3'),
    ({'mlp_bias': False}, 'has mlp_bias=False of DINOv3'),
    ({'hidden_act': 'gelu'}, "gated MLP with the activation 'gelu'"),
  ],
)
def test_unknown_dinov3_are_refused(tmp_path, settings, message):
  folder = copied('hf_dinov3', tmp_path / 'x')
  config = golden_json('hf_dinov3/config.json') | settings
  (folder / 'config.json').write_text(json.dumps(config))
  with pytest.raises(errors.UserError, match=message):
    checkpoint.read(folder)


def test_unknown_ways_of_resizing_are_refused():
  weights = random_weights(VIT, posemb_resize='nearest')
  with pytest.raises(errors.UserError, match=r"'nearest', must .* zoom, bicub"):
    adaptation.at_size(weights, (96, 96))
  assert set(resized_positions.METHODS) == set(spec.RESIZES)


@pytest.mark.parametrize('method', spec.RESIZES)
def test_resizing_keeps_constants_and_orientation(method):
  constant = np.full((3, 5, 2), 7, np.float32)
  resized = resized_positions.resize(constant, (6, 2), method)
  np.testing.assert_allclose(resized, np.full((6, 2, 2), 7), rtol=1e-6)
  ramp = np.broadcast_to(np.arange(3.0)[:, None, None], (3, 5, 1))
  resized = resized_positions.resize(ramp, (9, 4), method)[..., 0]
  assert (np.diff(resized[2:-2], axis=0) > 0).all()
  np.testing.assert_allclose(np.diff(resized, axis=1), 0, atol=1e-9)


@pytest.mark.parametrize(
  'fields, activation',
  [
    ({'hidden_act': 'quick_gelu'}, 'quick_gelu'),
    ({'hidden_act': 'quick_gelu', 'use_swiglu_ffn': True}, 'swiglu'),
    ({}, 'gelu'),
  ],
)
def test_dinov2_has_the_activation_of_its_json(fields, activation):
  family = families.FAMILIES['dinov2']
  model = family.read(fields, False)
  assert model['transformer']['block'].get('activation', 'gelu') == activation
  assert not families.lost(model, family.read(family.write(model), False))
