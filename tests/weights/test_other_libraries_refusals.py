"""Weights of other libraries that are wrong or not supported."""

import json

from golden_files import GOLDEN
from made import assert_same
from made import changed
from made import copied
from made import HYBRID
from made import MIXER
from made import random_weights
from made import VIT
import numpy as np
import pytest
import safetensors.numpy

from vit_jax import checkpoint
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.weights import formats
from vit_jax.weights.timm import to_timm


def sharded(folder):
  arrays = safetensors.numpy.load_file(folder / 'model.safetensors')
  (folder / 'model.safetensors').unlink()
  names = sorted(arrays)
  parts = {'a.safetensors': names[::2], 'b.safetensors': names[1::2]}
  for file, part in parts.items():
    safetensors.numpy.save_file({k: arrays[k] for k in part}, folder / file)
  files.write_json(
    {'weight_map': {k: f for f, part in parts.items() for k in part}},
    folder / 'model.safetensors.index.json',
  )
  return folder


def test_shards_are_joined_and_missing_ones_named(tmp_path):
  folder = sharded(copied('hf_vit', tmp_path / 'x'))
  assert_same(checkpoint.load(folder), checkpoint.load(GOLDEN / 'hf_vit'))
  (folder / 'b.safetensors').unlink()
  with pytest.raises(errors.UserError, match=r'1 of 2 shards .* b.safetensors'):
    checkpoint.load(folder)


def without(name):
  return lambda arrays: {k: x for k, x in arrays.items() if k != name}


def transposed(name):
  return lambda arrays: {
    k: np.ascontiguousarray(x.T) if k == name else x for k, x in arrays.items()
  }


def swin(arrays):
  return {
    k.replace('blocks', 'layers.0.blocks') + '_table': x
    for k, x in arrays.items()
  }


@pytest.mark.parametrize(
  'name, change, message',
  [
    (
      'timm_vit',
      swin,
      r'x \(.*\) is neither a ViT nor a Mixer of timm: its \d+ arrays',
    ),
    (
      'timm_vit',
      lambda x: x | {'blocks.0.ls1.gamma': x['norm.bias']},
      r'2 arrays are missing, 0 left over. It lacks blocks.1.ls1.gamma',
    ),
    (
      'timm_vit',
      lambda x: x | {'blocks.0.attn.q_norm.bias': x['norm.bias']},
      r'0 arrays are missing, 1 left over. No such model has blocks.0.attn.q_n',
    ),
    ('timm_vit', without('blocks.1.norm2.bias'), r'lacks blocks.1.norm2.bias'),
    ('hf_vit', without('classifier.bias'), r'It lacks classifier.bias'),
    (
      'hf_vit',
      transposed('vit.encoder.layer.1.intermediate.dense.weight'),
      r'Dense_0/kernel \(vit.encoder.layer.1.intermediate.dense.weight\):'
      r' \(64, 32\), the model wants \(32, 64\)',
    ),
    (
      'timm_vit',
      transposed('blocks.0.attn.qkv.weight'),
      r'No such model has blocks.0.attn.qkv.weight',
    ),
  ],
)
def test_wrong_arrays_are_named(tmp_path, name, change, message):
  folder = changed(name, tmp_path / 'x', change)
  with pytest.raises(errors.UserError, match=f'(?s){message}'):
    checkpoint.load(folder)


@pytest.mark.parametrize(
  'name, settings, message',
  [
    ('hf_vit', {'model_type': 'swan'}, "'swan' of tr.*, which is not known"),
    ('hf_vit', {'hidden_act': 'relu'}, "activation 'relu'"),
    ('hf_vit', {'num_attention_heads': 5}, 'which 5 heads do not divide'),
    ('hf_vit', {'image_size': 64}, r'\(1, 17, 32\), the model wants \(1, 65'),
    ('timm_vit', {'global_pool': 'map'}, "pools by 'map'"),
    ('timm_vit', {'model_args': {'act_layer': 'silu'}}, "activation 'silu'"),
    ('timm_vit', {'model_args': {'qk_norm': True}}, 'has qk_norm=True of timm'),
  ],
)
def test_wrong_configs_are_refused(tmp_path, name, settings, message):
  folder = copied(name, tmp_path / 'x')
  config = json.loads((folder / 'config.json').read_text())
  if 'model_args' in settings:
    settings['model_args'] |= {'num_heads': 4}
  (folder / 'config.json').write_text(json.dumps(config | settings))
  with pytest.raises(errors.UserError, match=message):
    checkpoint.load(folder)


def test_heads_must_be_known(tmp_path):
  folder = copied('timm_vit', tmp_path / 'x')
  (folder / 'config.json').unlink()
  with pytest.raises(errors.UserError, match='how many heads .* config.json'):
    checkpoint.load(folder)


def test_config_without_heads_is_named(tmp_path):
  folder = copied('timm_vit', tmp_path / 'x')
  path = folder / 'config.json'
  config = json.loads(path.read_text())
  config.pop('model_args')
  path.write_text(json.dumps(config))
  with pytest.raises(errors.UserError, match='Add it to its config.json'):
    checkpoint.load(folder)


def test_pickles_are_not_opened(tmp_path):
  (tmp_path / 'pytorch_model.bin').write_bytes(b'\x80\x02')
  with pytest.raises(errors.UserError, match='never opened.*safetensors'):
    checkpoint.load(tmp_path)


def test_damaged_json_is_named(tmp_path):
  folder = copied('hf_vit', tmp_path / 'x')
  (folder / 'config.json').write_text('{"model_type": ')
  with pytest.raises(errors.UserError, match=r'config.json is damaged'):
    checkpoint.load(folder)


NOT_SQUARE = {
  'shape': (64, 96, 3),
  'classifier': 'token_mean',
  'transformer': {**VIT['transformer'], 'block': {'layer_scale': 1.0}},
}


@pytest.mark.parametrize(
  'to, changes, message',
  [
    (
      'huggingface',
      {'classifier': 'unpooled'},
      'no model with classifier=unpooled.*to=timm',
    ),
    ('huggingface', {'representation_size': 8}, 'with representation_size=8'),
    ('timm', {'representation_size': 8}, 'no tanh layer'),
    # Its LayerScale, which transformers has, is not the reason.
    ('huggingface', NOT_SQUARE, r'no model with image_size=\(64, 96\)\.'),
  ],
)
def test_convert_names_unsupported_features(tmp_path, to, changes, message):
  weights = random_weights(VIT, **changes)
  with pytest.raises(errors.UserError, match=message):
    formats.convert(weights, str(tmp_path / 'x'), to)
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('to', ['timm', 'npz'])
def test_a_model_that_ends_without_layernorm_is_refused(tmp_path, to):
  weights = checkpoint.read(GOLDEN / 'clip_classifier')
  with pytest.raises(errors.UserError, match='LayerNorm after its blocks') as e:
    formats.convert(weights, str(tmp_path / f'x.{to}'), to)
  assert '\n' not in str(e.value)
  assert not list(tmp_path.iterdir())


def test_to_timm_refuses_unreleased_sizes():
  for config in (MIXER, HYBRID):
    with pytest.raises(errors.UserError, match='it has only the released'):
      to_timm.export(random_weights(config))
