"""Damaged weights and settings give one message."""

import json
import shutil

from golden_files import GOLDEN
import numpy as np
import pytest
import safetensors.numpy

from vit_jax import checkpoint
from vit_jax import predictor
from vit_jax.runtime import errors
from vit_jax.weights import artifact
from vit_jax.weights import record as weights_lib

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
  *(
    ('hf_vit', 'vit_jax_weights', x)
    for x in (
      {'temperature': 0},
      {'temperature': '2'},
      {'thresholds': [0.5]},
      {'task': 'art'},
      {'loss': 'large'},
      {'preprocessing': {'resize_test': 16}},
      {'preprocessing': {'interpolation': 'soft'}},
    )
  ),
]


@pytest.mark.parametrize('name, field, value', DAMAGED)
def test_damaged_settings_give_one_message(tmp_path, name, field, value):
  folder = tmp_path / 'x'
  shutil.copytree(GOLDEN / name, folder)
  path = folder / 'config.json'
  config = json.loads(path.read_text()) | {field: value}
  # With it, some of our fields would be left out as stale.
  config.pop('transformers_version', None)
  path.write_text(json.dumps(config))
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
def test_damaged_index_of_shards_is_named(tmp_path, index):
  (tmp_path / 'model.safetensors.index.json').write_text(index)
  with pytest.raises(errors.UserError, match=r'index.json is damaged'):
    checkpoint.read(tmp_path)


def test_cut_safetensors_is_named(tmp_path):
  (tmp_path / 'x.safetensors').write_bytes(b'\x10\0\0')
  with pytest.raises(errors.UserError, match=r'read as a \.safetensors'):
    checkpoint.read(tmp_path / 'x.safetensors')


@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf])
def test_parameters_that_are_not_finite_are_refused(tmp_path, value):
  arrays = dict(np.load(GOLDEN / 'vit_token.npz'))
  arrays['head/bias'][3] = value
  np.savez(tmp_path / 'x.npz', **arrays)
  with pytest.raises(errors.UserError, match='1 of 10 numbers in head/bias'):
    checkpoint.read(tmp_path / 'x.npz')


def test_sums_of_parameters_may_overflow(tmp_path):
  arrays = dict(np.load(GOLDEN / 'vit_token.npz'))
  arrays['head/bias'][:2] = np.finfo(np.float32).max
  np.savez(tmp_path / 'x.npz', **arrays)
  assert checkpoint.read(tmp_path / 'x.npz').params['head']['bias'][0] > 1e38


def test_incomplete_attention_pooling_is_refused(tmp_path):
  params = checkpoint.load(GOLDEN / 'vit_gap.npz')
  posemb = params['Transformer'].pop('posembed_input')['pos_embedding']
  params |= {'pos_embedding': posemb, 'MAPHead_0': {'probe': np.zeros(3)}}
  np.savez(tmp_path / 'x.npz', **weights_lib.flatten({'params': params}))
  with pytest.raises(
    errors.UserError, match='MAPHead_0/LayerNorm_0/bias: missing'
  ):
    checkpoint.read(tmp_path / 'x.npz')


def resized(path, size):
  path.write_bytes(path.read_bytes()[:size])


def swin(folder):
  """Renames the arrays as in timm's Swin; its config.json stays."""
  path = folder / 'model.safetensors'
  arrays = safetensors.numpy.load_file(path)
  arrays = {
    k.replace('blocks.', 'layers.0.blocks.'): x for k, x in arrays.items()
  }
  safetensors.numpy.save_file(arrays, path)
  config = json.loads((folder / 'config.json').read_text())
  del config['model_args']
  config['architecture'] = 'newer_tiny'
  (folder / 'config.json').write_text(json.dumps(config))


def convnext(folder):
  swin(folder)
  arrays = {'stem.0.weight': np.zeros((2, 2), np.float32)}
  safetensors.numpy.save_file(arrays, folder / 'model.safetensors')


WRONG = [  # What is copied, what happens to it, what is read, what is said.
  ('hf_vit', lambda p: resized(p / 'model.safetensors', 50_000), '',
   r'it is cut, 50,000 of 137,072 bytes\. Fetch it again\.'),
  ('hf_vit', lambda p: resized(p / 'model.safetensors', 300), '',
   r'it is cut in its header, after 300 bytes'),
  ('hf_vit', lambda p: resized(p / 'model.safetensors', 0), '',
   r'read as a \.safetensors: it is an empty file\.$'),
  ('hf_vit', lambda p: resized(p / 'config.json', 0), '', 'config.json is empty'),
  ('hf_vit', lambda p: resized(p / 'config.json', 9), '', 'json is damaged: '),
  ('hf_vit', lambda p: (p / 'model.safetensors').unlink(), '',
   'holds no weights: it has no model.safetensors, .* It has io.npz: give'),
  ('timm_vit', swin, '',
   r'\(newer_tiny\) is of another architecture, .* No such model has layers'),
  ('timm_vit', swin, 'model.safetensors', r'\(newer_tiny\) is of another arch'),
  ('timm_vit', convnext, '', r'\(newer_tiny\) is neither a ViT nor .* stem.0.w'),
  ('', lambda p: (p / 'x.npz').mkdir(), 'x.npz', 'x.npz holds no weights'),
  ('', lambda p: (p / 'checkpoints').mkdir(), '', 'has saved no whole check'),
  ('', lambda p: None, 'x.pth', r'There is no .* x\.pth\.|no .*file or folder'),
  ('', lambda p: None, 'x.npz', 'There is no checkpoint file or folder'),
  ('', lambda p: (p / 'x.pth').write_bytes(b'\x80\x02'), 'x.pth', 'a pickle'),
]  # fmt: skip


@pytest.mark.parametrize('source, change, path, message', WRONG)
def test_wrong_files_give_their_reason(tmp_path, source, change, path, message):
  folder = tmp_path / 'x'
  if source:
    shutil.copytree(GOLDEN / source, folder)
  else:
    folder.mkdir()
  change(folder)
  with pytest.raises(errors.UserError, match=message) as e:
    checkpoint.read(folder / path)
  text = str(e.value)
  assert str(tmp_path) in text
  for word in ('Error', 'Errno', 'beside it', 'Traceback'):
    assert word not in text


@pytest.mark.parametrize('name', ['model.npz', 'labels.txt'])
def test_missing_file_of_artifact_is_named(tmp_path, name):
  artifact.save(tmp_path / 'x', checkpoint.read(GOLDEN / 'vit_token.npz'))
  (tmp_path / 'x' / name).unlink()
  with pytest.raises(errors.UserError, match=f'artifact: {name} is missing'):
    checkpoint.read(tmp_path / 'x')


def test_npz_is_read_with_any_suffix(tmp_path):
  shutil.copy(GOLDEN / 'vit_token.npz', tmp_path / 'x.safetensors')
  weights = checkpoint.read(tmp_path / 'x.safetensors')
  assert weights.image_shape == (32, 32, 3)


def test_crops_beyond_the_image_are_not_taken(tmp_path, caplog):
  folder = tmp_path / 'x'
  shutil.copytree(GOLDEN / 'timm_vit', folder)
  path = folder / 'config.json'
  config = json.loads(path.read_text())
  fields = config.get('pretrained_cfg', config)
  fields['crop_pct'], fields['crop_mode'] = 1.14, 'center'
  path.write_text(json.dumps(config))
  assert checkpoint.read(folder).preprocessing.resize_test is None
  assert 'crop_pct 1.14' in caplog.text


def test_unknown_arrays_are_named(tmp_path):
  np.savez(tmp_path / 'x.npz', **{'foo/bar': np.zeros(3)})
  weights = checkpoint.read(tmp_path / 'x.npz')
  with pytest.raises(errors.UserError, match='which model .* foo/bar, '):
    predictor.Predictor(weights)
