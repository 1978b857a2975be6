"""ViTs of timm with parts that the official models do not have."""

import dataclasses
import json

from golden_files import GOLDEN
from golden_files import golden_json
import live
from made import assert_same
from made import copied
from made import MIXER
from made import random_weights
from made import VIT
import numpy as np
import pytest

from vit_jax import checkpoint
from vit_jax.configs import models as model_configs
from vit_jax.data import preprocessing
from vit_jax.runtime import errors
from vit_jax.weights import formats
from vit_jax.weights import token_positions
from vit_jax.weights.timm import architectures
from vit_jax.weights.timm import from_timm
from vit_jax.weights.timm import to_timm

NAMES = (
  *('timm_clip', 'timm_map', 'timm_dinov2', 'timm_dinov3'),
  *('timm_deit_distilled', 'timm_deit3'),
)
BIASES = {'block': {'biases': 'qv'}}


@pytest.mark.parametrize('name', NAMES)
def test_outputs_equal_timm_and_files_come_back(tmp_path, name):
  weights = checkpoint.read(GOLDEN / name)
  with np.load(GOLDEN / name / 'io.npz') as io:
    got = live.output(weights, io['inputs'])
    np.testing.assert_allclose(got, io['outputs'], atol=2e-6)
  formats.convert(weights, str(tmp_path / 'x'), 'timm')
  live.assert_same_arrays(GOLDEN / name, tmp_path / 'x')
  again = checkpoint.read(tmp_path / 'x')
  assert again.model == weights.model
  assert_same(again.params, weights.params)


def test_deit3_is_written_to_transformers_without_layer_scale(tmp_path, caplog):
  weights = checkpoint.read(GOLDEN / 'timm_deit3')
  formats.convert(weights, str(tmp_path / 'x'), 'huggingface')
  assert 'no LayerScale in such a model' in caplog.text
  config = golden_json(tmp_path / 'x' / 'config.json')
  assert config['architectures'] == ['ViTForImageClassification']
  again = checkpoint.read(tmp_path / 'x')
  assert 'block' not in again.model['transformer']
  with np.load(GOLDEN / 'timm_deit3' / 'io.npz') as io:
    got = live.output(again, io['inputs'])
    np.testing.assert_allclose(got, io['outputs'], atol=2e-6)


def test_settings_come_from_the_architecture(tmp_path):
  """Arguments that a config.json need not repeat are known by the name."""
  for name in NAMES:
    folder = copied(name, tmp_path / name)
    config = golden_json(f'{name}/config.json')
    sizes = ('img_size', 'num_heads')
    config['model_args'] = {k: config['model_args'][k] for k in sizes}
    (folder / 'config.json').write_text(json.dumps(config))
    assert checkpoint.read(folder).model == checkpoint.read(GOLDEN / name).model


def test_images_keep_their_size_if_patches_leave_out_its_last_pixels(tmp_path):
  folder = copied('timm_vit', tmp_path / 'x')
  config = golden_json('timm_vit/config.json')
  del config['model_args']['img_size']
  config['pretrained_cfg'] = {'input_size': [3, 35, 35], 'crop_pct': 0.9}
  (folder / 'config.json').write_text(json.dumps(config))
  how = checkpoint.read(folder).preprocessing
  assert (how.size, how.resize_test) == ((35, 35), 38)  # As 35 / 0.9 in timm.


@pytest.mark.parametrize('classifier', ['gap', 'token'])
@pytest.mark.parametrize('registers', [0, 1, 4])
def test_positions_of_models_with_registers_are_resized_as_timm_does(
  classifier, registers
):
  weights = random_weights(
    VIT, classifier=classifier, num_registers=registers, num_positioned=0
  )
  config = {'architecture': 'vit_medium_patch16_reg_gap_256'}
  method = architectures.posemb_resize(config, weights.spec)
  assert method == ('bicubic_antialias' if registers else 'zoom')


def test_modules_that_timm_adapts_are_named():
  def named(config, channels=3):
    weights = random_weights(config, shape=(64, 64, channels))
    how = preprocessing.Preprocessing(size=(64, 64), channels=channels)
    weights = dataclasses.replace(weights, preprocessing=how)
    exported = to_timm.export(weights)[1]['config.json']['pretrained_cfg']
    return exported.get('first_conv'), exported['classifier']

  assert named(VIT) == ('patch_embed.proj', 'head')
  sizes = {'num_blocks': 8, 'tokens_mlp_dim': 256, 'channels_mlp_dim': 2048}
  small = MIXER | sizes | {'hidden_dim': 512, 'patches': {'size': (32, 32)}}
  assert named(small) == ('stem.proj', 'head')
  hybrid = model_configs.get_model_config('R+ViT-Ti_16').to_dict()
  assert named(hybrid)[0] == 'patch_embed.backbone.conv'
  # timm before 1.0.31 would take four channels for colours.
  assert named(VIT, channels=4) == (None, 'head')
  distilled = to_timm.export(checkpoint.read(GOLDEN / 'timm_deit_distilled'))
  names = distilled[1]['config.json']['pretrained_cfg']['classifier']
  assert names == ['head', 'head_dist']


def test_heads_of_released_architectures():
  for name, heads in (
    ('vit_giantopt_patch16_siglip_384', 16),
    ('vit_huge_plus_patch16_dinov3.lvd1689m', 20),
    ('vit_7b_patch16_dinov3', 32),
  ):
    known = architectures.arguments({'architecture': name})
    assert known['num_heads'] == heads


def test_dinov3_is_known_without_a_config(tmp_path):
  folder = copied('timm_dinov3', tmp_path / 'x')
  config = {from_timm.OPTIONS: {'num_heads': 2}}
  (folder / 'config.json').write_text(json.dumps(config))
  with pytest.raises(errors.UserError, match='only the Evas of DINOv3'):
    checkpoint.read(folder)
  (folder / 'config.json').unlink()
  with pytest.raises(errors.UserError, match='how many heads'):
    checkpoint.read(folder)


@pytest.mark.parametrize(
  'name, arguments, message',
  [
    ('timm_dinov3', {'rope_type': 'mixed'}, "it has rope_type='mixed'"),
    ('timm_dinov3', {'use_rot_pos_emb': False}, 'it has use_rot_pos_emb=False'),
    ('timm_dinov3', {'use_post_norm': True}, 'has use_post_norm=True of timm'),
    ('timm_dinov3', {'global_pool': 'map'}, "it has global_pool='map'"),
    ('timm_map', {'pool_include_prefix': True}, 'has pool_include_prefix=True'),
    ('timm_map', {'attn_layer': 'diff'}, "has attn_layer='diff' of timm"),
    ('timm_map', {'global_pool': 'avg'}, "pools by 'avg'"),
    ('timm_clip', {'global_pool': 'map'}, "pools by 'map'"),
    ('timm_clip', {'norm_layer': 'rmsnorm'}, "has norm_layer='rmsnorm'"),
  ],
)
def test_what_is_not_read_is_named(tmp_path, name, arguments, message):
  folder = copied(name, tmp_path / 'x')
  config = golden_json(f'{name}/config.json')
  config['model_args'] |= arguments
  (folder / 'config.json').write_text(json.dumps(config))
  with pytest.raises(errors.UserError, match=message):
    checkpoint.read(folder)


def test_rotations_that_arrays_do_not_tell_are_refused(tmp_path):
  folder = copied('timm_clip', tmp_path / 'x')
  config = golden_json('timm_clip/config.json')
  config['architecture'] = 'vit_pe_core_base_patch16_224.fb'
  (folder / 'config.json').write_text(json.dumps(config))
  message = r'\(vit_pe_core.* is an EVA .* no model here has its rotations'
  with pytest.raises(errors.UserError, match=message):
    checkpoint.read(folder)


@pytest.mark.parametrize(
  'changes, message',
  [
    ({'transformer': BIASES}, "attention with biases 'qv' alone"),
    (
      {'transformer': {'first_norm': True}},
      'LayerNorm before the blocks unless',
    ),
    ({'distillation': 'token'}, 'distillation token without a second head'),
    ({'classifier': 'token_mean'}, "classifier 'token_mean'"),
    (
      {'rotary_base': 100.0, 'transformer': BIASES},
      'activation but the exact GELU beside rotations',
    ),
    (
      {'rotary_base': 100.0, 'classifier': 'map', 'transformer': BIASES},
      'attention pooling beside rotations',
    ),
    ({'projection': 3}, 'projection before its head'),
  ],
)
def test_what_is_not_written_is_named(changes, message):
  encoder = VIT['transformer'] | changes.get('transformer', {})
  weights = random_weights(VIT | changes | {'transformer': encoder})
  with pytest.raises(errors.UserError, match=message):
    to_timm.export(weights)


@pytest.mark.parametrize('number', [0, 1, 3])
def test_position_embeddings_move_to_their_tokens(number):
  """The outputs stay the same, bit for bit."""
  weights = random_weights(VIT, num_registers=2)
  images = live.random_images(0, weights.image_shape[:2])
  moved = token_positions.positioned(weights, number)
  assert moved.spec.num_positioned == number
  np.testing.assert_array_equal(
    live.output(moved, images), live.output(weights, images)
  )
  assert token_positions.positioned(moved).model == weights.model
  again = token_positions.positioned(moved)
  np.testing.assert_array_equal(
    live.output(again, images), live.output(weights, images)
  )


def test_registers_without_positions_are_written(tmp_path):
  """In timm, all tokens before the patches have positions, or none has."""
  transformer = VIT['transformer'] | {'exact_gelu': True}
  weights = random_weights(VIT, num_registers=2, transformer=transformer)
  formats.convert(weights, str(tmp_path / 'x'), 'timm')
  again = checkpoint.read(tmp_path / 'x')
  assert again.spec.num_positioned == 0
  images = live.random_images(0, weights.image_shape[:2])
  np.testing.assert_array_equal(
    live.output(again, images), live.output(weights, images)
  )
  back = token_positions.positioned(again)
  assert dataclasses.replace(back.spec, name='') == dataclasses.replace(
    weights.spec, name=''
  )


@pytest.mark.parametrize('number', [0, 3])
def test_an_npz_keeps_the_outputs_of_other_positions(tmp_path, number):
  """It tells neither how many tokens have positions nor needs to."""
  weights = random_weights(VIT, num_registers=2)
  path = tmp_path / 'x.npz'
  formats.convert(token_positions.positioned(weights, number), str(path), 'npz')
  again = checkpoint.read(path)
  assert again.image_shape == weights.image_shape
  images = live.random_images(0, weights.image_shape[:2])
  np.testing.assert_array_equal(
    live.output(again, images), live.output(weights, images)
  )
