"""Damaged weights and settings give one message."""

import json
import shutil

from conftest import GOLDEN
import numpy as np
import pytest

from vit_jax import checkpoint
from vit_jax import errors
from vit_jax import weights as weights_lib

NUMBERS = (None, 'abc', [1], {}, 1.5)


DAMAGED = [
  *(('hf_vit', 'num_attention_heads', x) for x in NUMBERS),
  *(('hf_vit', 'layer_norm_eps', x) for x in (None, 'abc', [1])),
  *(('hf_vit', 'image_size', x) for x in (None, 32.5)),
  *(('hf_vit', 'id2label', x) for x in ([1], 'ab', {'a': 'b'}, {'0': None})),
  ('hf_vit', 'hidden_act', ['gelu']),
  *(('timm_vit', 'model_args', x) for x in ('abc', [1])),
  *(('timm_vit', 'model_args', {'num_heads': x}) for x in ('abc', [1], 1.5)),
  ('timm_vit', 'mean', 0.5),
  ('timm_vit', 'mean', [0.5, 0.5]),
  ('timm_vit', 'std', [0.0, 0.0, 0.0]),
  ('timm_vit', 'label_names', 3),
  ('timm_vit', 'vit_jax_options', None),
]


@pytest.mark.parametrize('name, field, value', DAMAGED)
def test_damaged_settings_give_one_message(tmp_path, name, field, value):
  folder = tmp_path / 'x'
  shutil.copytree(GOLDEN / name, folder)
  path = folder / 'config.json'
  path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
  with pytest.raises(errors.UserError, match=str(folder)):
    checkpoint.read(folder)


NORM, HEAD = 'Transformer/encoder_norm/bias', 'head/bias'


def damaged_npz(change):
  arrays = dict(np.load(GOLDEN / 'vit_token.npz'))
  change(arrays)
  return arrays


@pytest.mark.parametrize(
  'change',
  [
    lambda x: x.pop(NORM),
    lambda x: x.pop(HEAD),
    lambda x: x.update({NORM: np.zeros((2, 2))}),
    lambda x: x.update({'head/kernel': np.zeros((5, 10))}),
    lambda x: x.update({'foo/bar': np.zeros(3)}),
    lambda x: x.update({'embedding/kernel': np.zeros(3)}),
  ],
)
def test_damaged_npz_files_give_one_message(tmp_path, change):
  path = tmp_path / 'x.npz'
  np.savez(path, **damaged_npz(change))
  with pytest.raises(errors.UserError, match=r'x\.npz'):
    checkpoint.read(path)


@pytest.mark.parametrize(
  'index', ['[]', '{"weight_map": {"a": 3}}', '{"weight_map": {"a": "../b"}}']
)
def test_a_damaged_index_of_shards(tmp_path, index):
  (tmp_path / 'model.safetensors.index.json').write_text(index)
  with pytest.raises(errors.UserError, match=r'index.json is damaged'):
    checkpoint.read(tmp_path)


def test_a_cut_safetensors_is_called_by_its_name(tmp_path):
  (tmp_path / 'x.safetensors').write_bytes(b'\x10\0\0')
  with pytest.raises(errors.UserError, match=r'not a \.safetensors file'):
    checkpoint.read(tmp_path / 'x.safetensors')


def test_an_attention_pooling_is_refused(tmp_path):
  params = checkpoint.load(GOLDEN / 'vit_gap.npz')
  posemb = params['Transformer'].pop('posembed_input')['pos_embedding']
  params |= {'pos_embedding': posemb, 'MAPHead_0': {'probe': np.zeros(3)}}
  np.savez(tmp_path / 'x.npz', **weights_lib.flatten({'params': params}))
  with pytest.raises(errors.UserError, match='pools by attention'):
    checkpoint.read(tmp_path / 'x.npz')
