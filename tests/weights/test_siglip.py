"""SigLIPs of transformers and big_vision give the outputs of transformers."""

import json

from golden_files import GOLDEN
from golden_files import golden_arrays
from golden_files import golden_json
import jax
from made import applied
from made import assert_same
import numpy as np
import pytest

from vit_jax import checkpoint
from vit_jax import models
from vit_jax.models import blocks
from vit_jax.runtime import errors
from vit_jax.weights import adaptation
from vit_jax.weights import array_files
from vit_jax.weights import formats
from vit_jax.weights import npz
from vit_jax.weights import record as weights_lib

BIG_VISION = 'siglip_big_vision.npz'
NAFLEX = ('siglip2', 'siglip2_image')
IMAGES = {'siglip_image': 'pooler_output', 'siglip_classifier': 'logits'}


@pytest.mark.parametrize('name', ['siglip', BIG_VISION])
def test_pairs_give_the_outputs_of_transformers(name):
  weights, io = checkpoint.read(GOLDEN / name), golden_arrays('siglip/io.npz')
  zimg, ztxt, out = applied(weights, images=io['images'], tokens=io['tokens'])
  np.testing.assert_allclose(zimg, io['image_embeds'], atol=1e-5)
  np.testing.assert_allclose(ztxt, io['text_embeds'], atol=1e-5)
  logits = models.similarities(zimg, ztxt, out)
  np.testing.assert_allclose(logits, io['logits_per_image'], atol=1e-5)
  assert weights.loss == 'sigmoid'
  record = weights.preprocessing
  assert (record.size, record.resize_test) == ((16, 16), None)
  assert {*record.mean, *record.std} == {0.5}


@pytest.mark.parametrize('name', IMAGES)
def test_image_towers_give_the_outputs_of_transformers(name):
  weights, io = checkpoint.read(GOLDEN / name), golden_arrays(f'{name}/io.npz')
  outputs = applied(weights, io['images'])
  np.testing.assert_allclose(outputs, io[IMAGES[name]], atol=1e-5)


@pytest.mark.parametrize('name', ['siglip', *IMAGES])
def test_conversion_gives_back_every_array(tmp_path, name):
  weights = checkpoint.read(GOLDEN / name)
  formats.convert(weights, str(tmp_path / 'x'), 'huggingface')
  want = array_files.read_safetensors(GOLDEN / name)
  have = array_files.read_safetensors(tmp_path / 'x')
  if name == 'siglip_image':  # transformers 4 wants the prefix, 5 reads both.
    want = {f'vision_model.{k}': x for k, x in want.items()}
  if name == 'siglip_classifier':  # It does not use its pooling.
    want = {k: x for k, x in want.items() if '.head.' not in k}
  assert_same(want, have)
  again = checkpoint.read(tmp_path / 'x')
  assert {**again.model, 'model_name': name} == {
    **weights.model,
    'model_name': name,
  }


@pytest.mark.parametrize('source', ['siglip', BIG_VISION])
def test_conversion_to_npz_writes_big_vision_names(tmp_path, source):
  weights = checkpoint.read(GOLDEN / source)
  formats.convert(weights, str(tmp_path / 'x.npz'), 'npz')
  assert_same(
    array_files.read_npz(GOLDEN / BIG_VISION),
    array_files.read_npz(tmp_path / 'x.npz'),
  )
  formats.convert(
    checkpoint.read(tmp_path / 'x.npz'), str(tmp_path / 'y'), 'huggingface'
  )
  assert_same(
    array_files.read_safetensors(GOLDEN / 'siglip'),
    array_files.read_safetensors(tmp_path / 'y'),
  )


def test_older_files_of_big_vision_are_read(tmp_path):
  """Stacked blocks, no prefix, inlined pooling, two position embeddings."""
  arrays = array_files.read_npz(GOLDEN / BIG_VISION)
  want = checkpoint.read(GOLDEN / BIG_VISION)
  flat = {
    k.removeprefix('params/').replace('/MAPHead_0/', '/'): x
    for k, x in arrays.items()
  }
  for tower, encoder in (('img', 'Transformer'), ('txt', 'Encoder_0')):
    params = want.params[tower][encoder]
    stacked = blocks.stack({k: v for k, v in params.items() if 'block' in k})
    flat = {k: x for k, x in flat.items() if 'encoderblock_' not in k} | {
      f'{tower}/{encoder}/{k}': x
      for k, x in weights_lib.flatten(stacked).items()
    }
  half = flat['txt/pos_embedding'] / 2
  flat |= {'txt/pos_embedding': half, 'txt/Encoder_0/pos_embedding': half}
  flat['t'] = flat['t'].reshape(())
  np.savez(tmp_path / 'x.npz', **flat)
  have = checkpoint.read(tmp_path / 'x.npz')
  assert_same(jax.tree.map(np.asarray, want.params), have.params)
  assert {**have.model, 'model_name': ''} == {**want.model, 'model_name': ''}


def test_text_towers_of_big_vision_without_a_head_get_one():
  """Those of the multilingual models, which transformers gives one too."""
  flat = array_files.read_npz(GOLDEN / BIG_VISION)
  flat = {k: x for k, x in flat.items() if '/txt/head/' not in k}
  head = npz.params_of(flat)['txt']['head']
  np.testing.assert_array_equal(head['kernel'], np.eye(16))
  assert not head['bias'].any()


def test_vision_towers_of_big_vision_pool_by_attention(tmp_path):
  """A file of one tower, such as ViT-g/14 of arXiv:2106.04560."""
  flat = array_files.read_npz(GOLDEN / BIG_VISION)
  prefix = 'params/img/'
  flat = {
    k.removeprefix(prefix): x for k, x in flat.items() if k.startswith(prefix)
  }
  np.savez(tmp_path / 'x.npz', **flat)
  weights = checkpoint.read(tmp_path / 'x.npz')
  pair = checkpoint.read(GOLDEN / BIG_VISION).image_tower()
  assert_same(pair.params, weights.params)
  assert {**weights.model, 'model_name': ''} == {**pair.model, 'model_name': ''}
  formats.convert(weights, str(tmp_path / 'y.npz'), 'npz')
  again = array_files.read_npz(tmp_path / 'y.npz')
  assert_same({f'params/{k}': x for k, x in flat.items()}, again)


def test_naflex_gives_the_outputs_of_transformers_at_any_grid():
  weights, io = (
    checkpoint.read(GOLDEN / 'siglip2'),
    golden_arrays('siglip2/io.npz'),
  )
  assert weights.image_shape == (16, 16, 3)
  for start, size in (('', (16, 16)), ('wide_', (12, 20))):
    resized = adaptation.at_size(weights, size)
    zimg, ztxt, out = applied(
      resized, images=io[f'{start}images'], tokens=io['tokens']
    )
    want = io[f'{start}logits_per_image']
    got = models.similarities(zimg, ztxt, out)
    np.testing.assert_allclose(got, want, atol=1e-5)
  image, io = (
    checkpoint.read(GOLDEN / 'siglip2_image'),
    golden_arrays('siglip2_image/io.npz'),
  )
  got = applied(image, io['images'])
  np.testing.assert_allclose(got, io['pooler_output'], atol=1e-5)


@pytest.mark.parametrize('name', NAFLEX)
def test_naflex_is_written_as_it_was(tmp_path, name):
  weights = checkpoint.read(GOLDEN / name)
  formats.convert(weights, str(tmp_path / 'x'), 'huggingface')
  want = array_files.read_safetensors(GOLDEN / name)
  if name == 'siglip2_image':  # As for SigLIP, with the prefix.
    want = {f'vision_model.{k}': x for k, x in want.items()}
  assert_same(want, array_files.read_safetensors(tmp_path / 'x'))
  config = json.loads((tmp_path / 'x' / 'config.json').read_text())
  assert (
    config['architectures']
    == golden_json(f'{name}/config.json')['architectures']
  )
  assert config.get('vision_config', config)['num_patches'] == 16
  again = checkpoint.read(tmp_path / 'x')
  assert {**again.model, 'model_name': name} == {
    **weights.model,
    'model_name': name,
  }
  wide = adaptation.at_size(weights, (12, 20))
  with pytest.raises(errors.UserError, match=r'image_size=\(12, 20\)'):
    formats.convert(wide, str(tmp_path / 'y'), 'huggingface')
