"""CLIPs of transformers give its outputs, and are written as they were."""

from golden_files import GOLDEN
from golden_files import golden_arrays
from golden_files import golden_json
from made import applied
import numpy as np
import pytest

from vit_jax import checkpoint
from vit_jax import models
from vit_jax.runtime import errors
from vit_jax.weights import adaptation
from vit_jax.weights import array_files
from vit_jax.weights import formats
from vit_jax.weights import huggingface
from vit_jax.weights import record as weights_lib
from vit_jax.weights.families import clip

IMAGES = {
  'clip_image': 'pooler_output',
  'clip_projected': 'image_embeds',
  'clip_classifier': 'logits',
}
PAIRS = ('clip', 'clip_gelu')


@pytest.mark.parametrize('name', PAIRS)
def test_pairs_give_the_outputs_of_transformers(name):
  weights, io = checkpoint.read(GOLDEN / name), golden_arrays(f'{name}/io.npz')
  zimg, ztxt, out = applied(weights, images=io['images'], tokens=io['tokens'])
  np.testing.assert_allclose(zimg, io['image_embeds'], atol=1e-5)
  np.testing.assert_allclose(ztxt, io['text_embeds'], atol=1e-5)
  logits = models.similarities(zimg, ztxt, out)
  np.testing.assert_allclose(logits, io['logits_per_image'], atol=1e-5)
  record = weights.preprocessing
  assert (record.size, record.resize_test) == ((16, 16), 16)
  assert (record.mean, record.std) == (clip.MEAN, clip.STD)


@pytest.mark.parametrize('name', IMAGES)
def test_image_towers_give_the_outputs_of_transformers(name):
  weights, io = checkpoint.read(GOLDEN / name), golden_arrays(f'{name}/io.npz')
  outputs = applied(weights, io['images'])
  np.testing.assert_allclose(outputs, io[IMAGES[name]], atol=1e-5)


def test_the_image_tower_of_a_pair_is_that_of_the_file():
  pair = checkpoint.read(GOLDEN / 'clip')
  io, tower = golden_arrays('clip/io.npz'), pair.image_tower()
  z = applied(tower, io['images'])
  z /= np.linalg.norm(z, axis=1, keepdims=True)
  np.testing.assert_allclose(z, io['image_embeds'], atol=1e-5)
  assert tower.image_tower() is tower


@pytest.mark.parametrize('name', ['clip', 'siglip'])
def test_the_image_tower_of_a_pair_is_resized(name):
  old = checkpoint.read(GOLDEN / name)
  new = adaptation.at_size(old, (24, 16))
  assert (new.preprocessing.size, new.model['pp']['size']) == ((24, 16), 24)
  positions = 'img/Transformer/posembed_input/pos_embedding'
  before, after = (weights_lib.flatten(w.params) for w in (old, new))
  assert [k for k in after if after[k] is not before[k]] == [positions]
  tower = adaptation.at_size(old.image_tower(), (24, 16))
  images = np.random.default_rng(0).normal(size=(2, 24, 16, 3))
  z = applied(tower, images)
  zimg, _, _ = applied(new, images=images)
  z /= np.linalg.norm(z, axis=1, keepdims=True)
  np.testing.assert_allclose(zimg, z, atol=1e-5)


@pytest.mark.parametrize('name', [*PAIRS, *IMAGES])
def test_conversion_gives_back_every_array(tmp_path, name):
  weights = checkpoint.read(GOLDEN / name)
  formats.convert(weights, str(tmp_path / 'x'), 'huggingface')
  want = array_files.read_safetensors(GOLDEN / name)
  have = array_files.read_safetensors(tmp_path / 'x')
  if name == 'clip_image':  # transformers 4 wants the prefix, 5 reads both.
    want = {f'vision_model.{k}': x for k, x in want.items()}
  assert have.keys() == want.keys()
  for key, x in want.items():
    assert x.shape == have[key].shape
    # Classifiers do not use their last LayerNorm.
    if name != 'clip_classifier' or '.post_layernorm.' not in key:
      np.testing.assert_array_equal(x, have[key], err_msg=key)
  again = checkpoint.read(tmp_path / 'x')
  assert {**again.model, 'model_name': name} == {
    **weights.model,
    'model_name': name,
  }


def test_grey_images_have_no_usual_mean():
  arrays = dict(array_files.read_safetensors(GOLDEN / 'clip_image'))
  name = 'embeddings.patch_embedding.weight'
  arrays[name] = arrays[name][:, :1]
  config = golden_json('clip_image/config.json') | {'num_channels': 1}
  weights = huggingface.from_state_dict(arrays, config, {})
  assert weights.preprocessing.mean == (0.5,)


def test_unknown_activations_and_lone_text_towers_are_refused():
  arrays = array_files.read_safetensors(GOLDEN / 'clip_image')
  config = {'model_type': 'clip_vision_model', 'hidden_act': 'relu'}
  with pytest.raises(errors.UserError, match="activation 'relu'; known are"):
    huggingface.from_state_dict(arrays, config, {})
  config = {'model_type': 'clip_text_model'}
  with pytest.raises(errors.UserError, match='a text tower; no model'):
    huggingface.from_state_dict({}, config, {})
