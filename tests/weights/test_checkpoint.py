"""Official checkpoints in and out, and messages about wrong files."""

import io
import pickle
import re
import zipfile

import flax.traverse_util
from golden_files import GOLDEN
from golden_files import golden_arrays
from golden_files import golden_json
import jax
import numpy as np
import pytest

from vit_jax import checkpoint
from vit_jax import models
from vit_jax.configs import common
from vit_jax.runtime import errors
from vit_jax.weights import npz

CONFIG = golden_json('index.json')['vit_token']['config']
TOKEN = GOLDEN / 'vit_token.npz'


def init_params(num_classes=5, size=(48, 48), **config):
  model = models.from_config(CONFIG | config, num_classes=num_classes)
  shapes = models.abstract_params(model, (*size, 3))
  return jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)


def load_pretrained(path=TOKEN, config=CONFIG, **kwargs):
  kwargs.setdefault('init_params', init_params())
  return checkpoint.load_pretrained(
    pretrained_path=path, model_config=config, **kwargs
  )


def flat(params):
  return flax.traverse_util.flatten_dict(params, sep='/')


def test_released_names_become_linen_names():
  params = {
    'encoderblock_11': {
      'LayerNorm_2': {'scale': 1},
      'MlpBlock_3': {'Dense_0': 2, 'Dense_1': 3},
      'LayerNorm_0': {'scale': 4},
      'MultiHeadDotProductAttention_1': {'out': 5},
    },
    'Conv_10': 6,
    'Conv_9': 7,
  }
  linen = {
    'encoderblock_11': {
      'LayerNorm_1': {'scale': 1},
      'MlpBlock_0': {'Dense_0': 2, 'Dense_1': 3},
      'LayerNorm_0': {'scale': 4},
      'MultiHeadDotProductAttention_0': {'out': 5},
    },
    'Conv_1': 6,
    'Conv_0': 7,
  }
  assert npz.to_linen(params) == linen
  assert npz.to_linen(linen) == linen


def test_load_pretrained_equals_official_loader():
  got = flat(load_pretrained())
  want = golden_arrays('finetune_load_48px_5classes.npz')
  assert got.keys() == want.keys()
  for name, x in want.items():
    np.testing.assert_array_equal(got[name], x, err_msg=name)


@pytest.mark.parametrize('name', ['ViT-L_16', 'ViT-B_16', 'augreg-L_16', 'x'])
def test_dropout_is_equal_by_path_and_by_name(tmp_path, name):
  path = tmp_path / f'{name}.npz'
  path.write_bytes(TOKEN.read_bytes())
  want = 0.0
  if name != 'x':
    config = common.with_model(common.get_config(), name)
    want = config.model.transformer.dropout_rate
  assert want == (0.1 if name == 'ViT-L_16' else 0.0)
  assert checkpoint.read(path).model['transformer']['dropout_rate'] == want


def test_load_pretrained_takes_shapes():
  params = init_params()
  shapes = jax.eval_shape(lambda: params) | {'head': params['head']}
  got = load_pretrained(init_params=shapes)
  assert jax.tree.structure(got) == jax.tree.structure(params)


@pytest.mark.parametrize('size', [None, 24])
def test_pre_logits_are_kept_or_dropped(size):
  config = CONFIG | {'representation_size': size}
  params = load_pretrained(
    GOLDEN / 'vit_representation.npz',
    config,
    init_params=init_params(size=(32, 32), representation_size=size),
  )
  assert ('pre_logits' in params) == (size is not None)


def test_load_pretrained_without_a_head():
  params = load_pretrained(init_params=init_params(num_classes=None))
  assert 'head' not in params
  config = CONFIG | {'patches': {'size': (16, 16)}}
  params = load_pretrained(
    GOLDEN / 'vit_patch16_headless.npz',
    config,
    init_params=init_params(size=(64, 64), **config),
  )
  assert params['head']['kernel'].shape == (32, 5)


def test_position_embeddings_equal_official_ones():
  arrays = golden_arrays('position_embeddings.npz')
  cases = [name[3:] for name in arrays if name.startswith('in_')]
  assert len(cases) == 6
  for case in cases:
    want = arrays[f'out_{case}']
    got = checkpoint.interpolate_posembed(
      arrays[f'in_{case}'], want.shape[1], case.endswith('_1')
    )
    np.testing.assert_allclose(got, want, atol=1e-6, err_msg=case)


def test_interpolate_posembed_keeps_ramps_on_any_grid():
  # A linear ramp stays one, corner to corner, whatever the grid.
  rows, columns = np.mgrid[0:1:3j, 0:1:5j]
  ramp = np.stack([rows, columns], -1).reshape(1, 15, 2)
  ramp = np.concatenate([np.full((1, 1, 2), 7.0), ramp], axis=1)
  got = checkpoint.interpolate_posembed(
    ramp, 1 + 7 * 4, True, grid=(7, 4), old_grid=(3, 5)
  )
  rows, columns = np.mgrid[0:1:7j, 0:1:4j]
  want = np.stack([rows, columns], -1).reshape(1, 28, 2)
  np.testing.assert_array_equal(got[:, 0], ramp[:, 0])
  np.testing.assert_allclose(got[:, 1:], want, atol=1e-6)
  # The same number of patches in another shape is another grid.
  turned = checkpoint.interpolate_posembed(
    ramp, 16, True, grid=(5, 3), old_grid=(3, 5)
  )
  assert not np.allclose(turned, ramp)


def test_interpolate_posembed_refuses_wrong_grid():
  with pytest.raises(errors.UserError, match='has 15 position .* square grid'):
    checkpoint.interpolate_posembed(np.zeros((1, 16, 2)), 26, True)
  # A file without a class token for a model that has one.
  with pytest.raises(errors.UserError, match='model.classifier'):
    load_pretrained(GOLDEN / 'vit_gap.npz')


def test_save_and_load_round_trip(tmp_path):
  params = checkpoint.load(TOKEN)
  checkpoint.save(params, tmp_path / 'model.npz')
  again = checkpoint.load(tmp_path / 'model.npz')
  jax.tree.map(np.testing.assert_array_equal, params, again)
  assert [p.name for p in tmp_path.iterdir()] == ['model.npz']


def test_failed_save_keeps_old_file(tmp_path, monkeypatch):
  path = tmp_path / 'model.npz'
  path.write_bytes(b'old')

  def fail(*args, **kwargs):
    raise OSError('disk full')

  monkeypatch.setattr(np, 'savez', fail)
  with pytest.raises(OSError, match='disk full'):
    checkpoint.save({'a': np.zeros(3)}, path)
  assert path.read_bytes() == b'old'


def repr_header():
  header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }"
  return header.ljust(117).encode() + b'\n'


def torch_zip():
  stream = io.BytesIO()
  with zipfile.ZipFile(stream, 'w') as f:
    f.writestr('archive/data.pkl', pickle.dumps({}))
  return stream.getvalue()


def wrong_file(kind):
  content = TOKEN.read_bytes()
  return {
    'empty': b'',
    'truncated': content[: len(content) // 2],
    'html': b'<!DOCTYPE html><html>403</html>',
    'pickle': pickle.dumps({'a': 1}),
    'lfs': b'version https://git-lfs.github.com/spec/v1\noid sha256:0\n',
    'safetensors': b'\x10\0\0\0\0\0\0\0{"a": 1}',
    'text': b'hello',
    'npy': b'\x93NUMPY\x01\x00v\x00' + repr_header() + bytes(4),
    'torch': torch_zip(),
  }[kind]


@pytest.mark.parametrize(
  'kind, message',
  [
    ('empty', 'an empty file'),
    ('truncated', r'cut or damaged after \d+ bytes'),
    ('html', 'an HTML or XML page'),
    ('pickle', 'a pickle, which is never opened'),
    ('lfs', 'a Git LFS pointer: run `git lfs pull`'),
    ('safetensors', r'cannot be read as a \.safetensors: it is cut in its'),
    ('npy', r'a single \.npy array'),
    ('torch', 'a PyTorch file'),
    ('text', "of an unknown kind .*b'hello'"),
  ],
)
def test_load_names_kind_of_wrong_file(tmp_path, kind, message):
  path = tmp_path / 'model.npz'
  path.write_bytes(wrong_file(kind))
  with pytest.raises(errors.UserError, match=f'(?s)model.npz.*{message}'):
    checkpoint.load(path)


def test_load_refuses_arrays_of_objects(tmp_path):
  path = tmp_path / 'model.npz'
  np.savez(path, a=np.array([{'x': 1}], dtype=object))
  with pytest.raises(errors.UserError, match='objects that are not arrays'):
    checkpoint.load(path)


def test_load_reads_bfloat16_arrays(tmp_path):
  path = tmp_path / 'model.npz'
  x = np.arange(4).astype(jax.numpy.bfloat16)
  np.savez(path, a=x)
  np.testing.assert_array_equal(checkpoint.load(path)['a'], x)


def test_load_pretrained_lists_differing_arrays():
  with pytest.raises(errors.UserError) as e:
    load_pretrained(init_params=init_params(hidden_size=64))
  assert re.search(r'vit_token.npz does not fit golden: \d+ arrays', str(e))
  assert '(32,), the model wants (64,)' in str(e.value)
