"""Weights of transformers, timm and big_vision, both ways."""

import dataclasses
import functools
import json

from golden_files import GOLDEN
from golden_files import golden_json
import jax
import jax.numpy as jnp
from made import assert_same
from made import changed
from made import HYBRID
from made import MIXER
from made import random_weights
from made import STEM
from made import VIT
import numpy as np
import pytest

from vit_jax import checkpoint
from vit_jax.weights import array_files
from vit_jax.weights import formats
from vit_jax.weights import record as weights_lib
from vit_jax.weights import to_huggingface
from vit_jax.weights.timm import module_names
from vit_jax.weights.timm import to_timm

PYTORCH = ('hf_vit', 'hf_vit_model', 'timm_vit', 'timm_vit_gap')


def outputs(weights, images, **changes):
  model = weights.module().clone(**changes)
  apply = jax.jit(functools.partial(model.apply, train=False))
  return apply({'params': weights.params}, images)


def operations(weights):
  """Returns all operations of a forward pass, with their constants."""
  images = np.zeros((2, *weights.image_shape), np.float32)
  return str(jax.make_jaxpr(lambda x: outputs(weights, x))(images))


@pytest.mark.parametrize('name', PYTORCH)
@pytest.mark.parametrize('is_folder', [True, False])
def test_outputs_equal_pytorch(name, is_folder):
  path = GOLDEN / name
  path = path if is_folder else path / 'model.safetensors'
  weights = checkpoint.read(path)
  with np.load(path / 'io.npz' if is_folder else path.parent / 'io.npz') as io:
    want = io['pooler_output' if name == 'hf_vit_model' else 'outputs']
    got = outputs(weights, io['inputs'])
  np.testing.assert_allclose(got, want, atol=1e-5)
  assert weights.image_shape == (32, 32, 3)


def test_hidden_states_of_headless_model_equal_pytorch():
  weights = checkpoint.read(GOLDEN / 'hf_vit_model')
  params = {k: v for k, v in weights.params.items() if k != 'pre_logits'}
  weights = dataclasses.replace(weights, params=params)
  with np.load(GOLDEN / 'hf_vit_model' / 'io.npz') as io:
    got = outputs(
      weights,
      io['inputs'],
      classifier='token_unpooled',
      representation_size=None,
    )
    np.testing.assert_allclose(got, io['last_hidden_state'], atol=1e-5)


@pytest.mark.parametrize('name', PYTORCH)
def test_export_undoes_read(name):
  export = to_huggingface.export if name.startswith('hf') else to_timm.export
  arrays, contents = export(checkpoint.read(GOLDEN / name))
  original = array_files.read_safetensors(GOLDEN / name)
  assert arrays.keys() == original.keys()
  for key, x in original.items():
    np.testing.assert_array_equal(arrays[key], x, err_msg=key)
  if name.startswith('hf'):
    have, want = contents['config.json'], golden_json(f'{name}/config.json')
    ignored = {'transformers_version', 'initializer_range', 'encoder_stride'}
    if name == 'hf_vit':
      ignored |= {'pooler_output_size'}  # It has no pooler.
    else:
      ignored |= {'id2label', 'label2id'}
    have = json.loads(json.dumps(have))
    assert {k: have[k] for k in want.keys() - ignored} == {
      k: want[k] for k in want.keys() - ignored
    }


@pytest.mark.parametrize(
  'to, config, changes',
  [
    ('huggingface', VIT, {}),
    ('huggingface', VIT, {'patches': {'size': [4, 8]}}),
    ('timm', VIT, {}),
    ('timm', VIT, {'classifier': 'gap'}),
    ('timm', VIT, {'classifier': 'gap', 'fc_norm': True}),
    ('timm', VIT, {'classifier': 'token_gap', 'fc_norm': True}),
    ('timm', VIT, {'classifier': 'token_gap'}),
    ('timm', HYBRID, {'resnet': {'num_layers': [2, 1], 'width_factor': 1}}),
    ('timm', STEM, {'resnet': {'num_layers': [], 'width_factor': 1}}),
    ('timm', MIXER, {}),
  ],
)
def test_round_trip_is_bit_exact(tmp_path, monkeypatch, to, config, changes):
  # Sizes that timm could not make are fine for this.
  monkeypatch.setattr(to_timm, '_hybrid_architecture', lambda *_: 'hybrid')
  monkeypatch.setattr(to_timm, '_mixer_architecture', lambda *_: 'mixer')
  weights = random_weights(config, **changes)
  checkpoint.save(weights.params, tmp_path / 'a.npz')
  formats.convert(weights, str(tmp_path / 'folder'), to)
  back = checkpoint.read(tmp_path / 'folder')
  formats.convert(back, str(tmp_path / 'b.npz'), 'npz')
  assert_same(
    checkpoint.load(tmp_path / 'a.npz'), checkpoint.load(tmp_path / 'b.npz')
  )
  for field in ('class_names', 'preprocessing'):
    assert getattr(back, field) == getattr(weights, field), field
  assert operations(weights) == operations(back)


@pytest.mark.parametrize('to', ['huggingface', 'timm'])
def test_conversion_keeps_exact_gelu_and_epsilon(tmp_path, to):
  transformer = VIT['transformer'] | {
    'exact_gelu': True,
    'layer_norm_epsilon': 1e-3,
  }
  weights = random_weights(VIT, transformer=transformer)
  formats.convert(weights, str(tmp_path / 'x'), to)
  back = checkpoint.read(tmp_path / 'x').model['transformer']
  assert (back['exact_gelu'], back['layer_norm_epsilon']) == (True, 1e-3)


def big_vision_params(params, stack):
  """Names and position embeddings as big_vision has them, for one model."""
  encoder = dict(params['Transformer'])
  posemb = encoder.pop('posembed_input')['pos_embedding']
  if stack:
    blocks = [encoder.pop(f'encoderblock_{i}') for i in range(3)]
    encoder['encoderblock'] = jax.tree.map(lambda *x: np.stack(x), *blocks)
  result = {**params, 'Transformer': encoder, 'pos_embedding': posemb}
  if 'cls' in params:  # Which has no position embedding there.
    result['cls'] = params['cls'] + posemb[:, :1]
    result['pos_embedding'] = posemb[:, 1:]
  return result


@pytest.mark.parametrize('stack', [False, True])
@pytest.mark.parametrize('name', ['vit_token', 'vit_gap'])
def test_outputs_of_big_vision_checkpoints(tmp_path, name, stack):
  params = big_vision_params(checkpoint.load(GOLDEN / f'{name}.npz'), stack)
  flat = weights_lib.flatten({'params': params, 'opt': {'count': np.zeros(3)}})
  np.savez(tmp_path / 'x.npz', **flat)
  weights = checkpoint.read(tmp_path / 'x.npz')
  with np.load(GOLDEN / f'{name}.io.npz') as io:
    got = outputs(weights, io['inputs'])
    np.testing.assert_allclose(got, io['outputs'], atol=1e-5)


def test_timm_class_token_without_position_embedding(tmp_path):
  def change(arrays):
    posemb = arrays['pos_embed']
    arrays['cls_token'] = arrays['cls_token'] + posemb[:, :1]
    return arrays | {'pos_embed': np.ascontiguousarray(posemb[:, 1:])}

  folder = changed('timm_vit', tmp_path / 'x', change)
  with np.load(GOLDEN / 'timm_vit' / 'io.npz') as io:
    got = outputs(checkpoint.read(folder), io['inputs'])
    np.testing.assert_allclose(got, io['outputs'], atol=1e-5)


@pytest.mark.parametrize('dtype', [np.float16, jnp.bfloat16])
def test_half_precision_is_read_as_float32(tmp_path, dtype):
  folder = changed(
    'hf_vit',
    tmp_path / 'x',
    lambda arrays: {k: x.astype(dtype) for k, x in arrays.items()},
  )
  weights = checkpoint.read(folder)
  assert {x.dtype for x in jax.tree.leaves(weights.params)} == {
    np.dtype(np.float32)
  }
  with np.load(GOLDEN / 'hf_vit' / 'io.npz') as io:
    error = np.abs(outputs(weights, io['inputs']) - io['outputs']).max()
  assert 1e-5 < error < 0.1


def test_qkv_is_split_into_views():
  arrays = {'blocks.0.attn.qkv.weight': np.zeros((96, 32), np.float32)}
  split = module_names.split(arrays)
  assert all(
    np.shares_memory(x, arrays['blocks.0.attn.qkv.weight'])
    for x in split.values()
  )


@pytest.mark.parametrize('name', ['timm_vit', 'hf_vit'])
def test_outputs_equal_installed_libraries(tmp_path, name):
  """Runs only where PyTorch and these libraries are installed."""
  torch = pytest.importorskip('torch')
  library = pytest.importorskip(
    'timm' if name == 'timm_vit' else 'transformers'
  )
  weights = random_weights(VIT)
  if name == 'timm_vit':
    formats.convert(weights, str(tmp_path / 'x'), 'timm')
    model = library.create_model(f'local-dir:{tmp_path}/x', pretrained=True)
    forward = model.eval()
  else:
    formats.convert(weights, str(tmp_path / 'x'), 'huggingface')
    model = library.ViTForImageClassification.from_pretrained(tmp_path / 'x')
    forward = lambda x: model.eval()(x).logits
  images = np.random.default_rng(1).uniform(-1, 1, (2, 64, 64, 3))
  images = images.astype(np.float32)
  with torch.no_grad():
    want = forward(torch.tensor(images.transpose(0, 3, 1, 2))).numpy()
  np.testing.assert_allclose(outputs(weights, images), want, atol=1e-5)
