"""Defaults and details of the formats of other libraries."""

import dataclasses
import json

from golden_files import GOLDEN
from golden_files import golden_json
from made import assert_same
from made import copied
from made import random_weights
from made import VIT
import numpy as np
import pytest
import safetensors
import safetensors.numpy

from vit_jax.configs import models as model_configs
from vit_jax.runtime import errors
from vit_jax.weights import formats
from vit_jax.weights import huggingface
from vit_jax.weights import to_huggingface
from vit_jax.weights.timm import from_timm as timm
from vit_jax.weights.timm import module_names
from vit_jax.weights.timm import to_timm


def arrays_of(name):
  return safetensors.numpy.load_file(GOLDEN / name / 'model.safetensors')


def hugging_face(arrays=None, config=None, preprocessor=None):
  config = golden_json('hf_vit/config.json') | (config or {})
  arrays = arrays_of('hf_vit') if arrays is None else arrays
  return huggingface.from_state_dict(arrays, config, preprocessor or {})


def from_timm(config, arrays=None):
  base = golden_json('timm_vit/config.json')
  arrays = arrays_of('timm_vit') if arrays is None else arrays
  return timm.from_state_dict(arrays, base | config)


NEW_NAMES = (  # The modules of transformers 5.
  ('encoder.layer.', 'layers.'),
  ('attention.attention.query', 'attention.q_proj'),
  ('attention.attention.key', 'attention.k_proj'),
  ('attention.attention.value', 'attention.v_proj'),
  ('attention.output.dense', 'attention.o_proj'),
  ('intermediate.dense', 'mlp.fc1'),
  ('output.dense', 'mlp.fc2'),
)


def test_names_of_transformers_5_are_read():
  arrays = {}
  for name, x in arrays_of('hf_vit').items():
    for old, new in NEW_NAMES:
      name = name.replace(old, new)
    arrays[name] = x
  assert any('q_proj' in name for name in arrays)
  assert_same(hugging_face(arrays).params, hugging_face().params)


def test_preprocessing_of_transformers_5_is_read(tmp_path):
  copied('clip', tmp_path / 'x')
  said = {'image_mean': [0.1, 0.2, 0.3], 'image_std': [0.4, 0.5, 0.6]}
  both = {'processor_class': 'CLIPProcessor', 'image_processor': said}
  path = tmp_path / 'x' / 'processor_config.json'
  path.write_text(json.dumps(both))
  record = formats.read(tmp_path / 'x').preprocessing
  assert (record.mean, record.std) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))


def test_names_that_occur_twice_are_told_apart(tmp_path):
  copied('hf_vit', tmp_path / 'x')
  path = tmp_path / 'x' / 'config.json'
  config = json.loads(path.read_text())
  names = config['id2label']
  names |= {'0': 'crane', '2': 'crane'}
  path.write_text(json.dumps(config))
  found = formats.read(tmp_path / 'x').class_names
  assert found[:3] == ['crane (0)', names['1'], 'crane (2)']


def test_float16_that_cannot_hold_a_number_is_not_written(tmp_path):
  weights = random_weights(VIT)
  weights.params['head']['bias'][0] = 3e5
  path = tmp_path / 'x.npz'
  with pytest.raises(errors.UserError, match='head/bias has the number 300000'):
    formats.convert(weights, str(path), 'npz', 'float16')
  assert not path.exists()
  formats.convert(weights, str(path), 'npz')
  assert formats.read(path).params['head']['bias'][0] == 3e5


def test_npz_refuses_what_it_would_read_with_positions(tmp_path):
  encoder = VIT['transformer'] | {'add_position_embedding': False}
  weights = random_weights(VIT, transformer=encoder)
  with pytest.raises(errors.UserError, match='without position embeddings'):
    formats.convert(weights, str(tmp_path / 'x.npz'), 'npz')
  assert not list(tmp_path.iterdir())


def test_unused_arrays_of_transformers_are_ignored():
  arrays = arrays_of('hf_vit')
  extra = arrays | {
    'vit.pooler.dense.weight': np.ones((32, 32), np.float32),
    'vit.pooler.dense.bias': np.ones(32, np.float32),
    'vit.embeddings.mask_token': np.ones((1, 1, 32), np.float32),
  }
  assert_same(hugging_face(extra).params, hugging_face().params)
  headless = {k: x for k, x in arrays.items() if 'classifier' not in k}
  bare = {k.removeprefix('vit.'): x for k, x in headless.items()}
  assert_same(hugging_face(headless).params, hugging_face(bare).params)


def test_settings_of_transformers_are_read_and_written():
  weights = hugging_face(
    config={
      'hidden_act': 'gelu_new',
      'hidden_dropout_prob': 0.25,
      'id2label': {str(i): f'name {i}' for i in (9, *range(9))},
    },
    preprocessor={'do_normalize': False, 'image_mean': [1, 2, 3]},
  )
  assert weights.model['transformer']['exact_gelu'] is False
  assert weights.class_names == [f'name {i}' for i in range(10)]
  assert weights.preprocessing.mean == (0.0,)
  assert weights.preprocessing.std == (1.0,)
  _, contents = to_huggingface.export(weights)
  assert contents['config.json']['hidden_dropout_prob'] == 0.25
  assert contents['config.json']['hidden_act'] == 'gelu_pytorch_tanh'


def test_files_for_transformers_have_pytorch_metadata(tmp_path):
  formats.convert(hugging_face(), str(tmp_path / 'x'), 'huggingface')
  path = tmp_path / 'x' / 'model.safetensors'
  with safetensors.safe_open(path, 'np') as f:
    assert f.metadata() == {'format': 'pt'}


@pytest.mark.parametrize(
  'architecture, heads, exact',
  [
    ('vit_base_patch16_gap_224', 16, True),
    ('test_vit', 2, True),
    ('vit_base_patch32_siglip_gap_256', 4, False),
    ('vit_large_patch16_siglip_gap_512', 4, False),
    ('vit_so400m_patch16_siglip_gap_384', 4, False),
    ('vit_giantopt_patch16_siglip_gap_256', 16, False),
    ('vit_large_patch16_siglip_gap_384', 4, True),
  ],
)
def test_architectures_of_timm_imply_settings(architecture, heads, exact):
  arguments = {} if heads != 4 else {'num_heads': 4}
  config = {'architecture': architecture, 'model_args': arguments}
  transformer = from_timm(config).model['transformer']
  assert (transformer['num_heads'], transformer['exact_gelu']) == (heads, exact)


def test_img_size_of_timm_overrides_grid():
  arguments = golden_json('timm_vit/config.json')['model_args']
  # Cells of the last row and column are cut: the grid alone tells 32.
  weights = from_timm({'model_args': arguments | {'img_size': [35, 39]}})
  assert weights.image_shape == (35, 39, 3)


@pytest.mark.parametrize('has_token', [True, False])
@pytest.mark.parametrize('pool', ['max', ''])
def test_unknown_poolings_of_timm_are_refused(has_token, pool):
  name = 'timm_vit' if has_token else 'timm_vit_gap'
  arguments = golden_json(f'{name}/config.json')['model_args']
  with pytest.raises(errors.UserError, match=f'pools by {pool!r}'):
    from_timm(
      {'model_args': arguments | {'global_pool': pool}}, arrays_of(name)
    )


def test_to_timm_writes_unusual_sizes():
  transformer = VIT['transformer'] | {'mlp_dim': 49}
  config = VIT | {
    'hidden_size': 44,
    'patches': {'size': (4, 8)},
    'transformer': transformer,
  }
  arrays, contents = to_timm.export(random_weights(config))
  arguments = contents['config.json']['model_args']
  assert arguments['patch_size'] == [4, 8]
  assert arguments['act_layer'] == 'gelu_tanh'
  assert int(44 * arguments['mlp_ratio']) == 49
  assert arrays['blocks.0.mlp.fc1.weight'].shape == (49, 44)


def test_to_timm_refuses_unreleased_hybrids():
  config = model_configs.get_model_config('r_ti16').to_dict()
  weights = random_weights(config)
  names, contents = to_timm.export(weights)
  assert contents['config.json']['architecture'] == 'vit_tiny_r_s16_p8_224'
  assert 'patch_embed.backbone.conv.weight' in names
  for change in (
    {'transformer': config['transformer'] | {'num_heads': 1}},
    {'transformer': config['transformer'] | {'mlp_dim': 24}},
    {'transformer': config['transformer'] | {'num_layers': 1}},
    {'patches': {'size': (4, 4)}},
  ):
    changed = dataclasses.replace(weights, model=config | change)
    with pytest.raises(errors.UserError, match='only the released ones'):
      to_timm.export(changed)


@pytest.mark.parametrize('export', [to_huggingface.export, to_timm.export])
def test_exports_refuse_models_without_position_embeddings(export):
  transformer = VIT['transformer'] | {'add_position_embedding': False}
  with pytest.raises(errors.UserError, match='position_?.?embedding'):
    export(random_weights(VIT | {'transformer': transformer}))


@pytest.mark.parametrize('stages, stem', [(False, ''), (True, 'stem.')])
def test_vit_names_follow_stem_of_timm(stages, stem):
  names = module_names.vit_names(stages=stages)
  backbone = 'patch_embed.backbone.'
  assert names['conv_root/kernel'] == f'{backbone}{stem}conv.weight'
  name = names['block2/unit1/conv_proj/kernel']
  assert name == f'{backbone}stages.1.blocks.0.downsample.conv.weight'
