"""Every public name of the official code is here, with its arguments, or named.

The table was read from google-research/vision_transformer at c6de1e5: by module, each
public class with its fields and each function with its arguments, in their order.
"""

import importlib
import inspect
import pydoc
import re

import flax.linen as nn
import pytest

from vit_jax.runtime import official

# A name without arguments is a constant, or a class without fields of its own.
_MODEL_GETTERS = (
  'testing testing_unpooled ti16 s16 s32 b8 b16 b32 l16 l32 h14 s16_gap_norep'
  ' s32_gap_norep b16_gap_norep b32_gap_norep r_ti16 r26_s32 r26_b32 r50_b16 r50_l32'
  ' mixer_b16 mixer_b32 mixer_l16 lit_b16b lit_b16b_2 lit_l16l lit_l16s lit_l16ti'
)
OFFICIAL = {
  'checkpoint': {
    'copy': 'src dst progress block_size',
    'get_augreg_df': 'directory',
    'inspect_params': 'params expected fail_if_extra fail_if_missing',
    'load': 'path',
    'load_pretrained': 'pretrained_path init_params model_config',
    'recover_tree': 'keys values',
  },
  'configs.augreg': {'get_config': 'model_or_filename'},
  'configs.common': {
    'DATASET_PRESETS': '',
    'get_config': '',
    'with_dataset': 'config dataset',
  },
  'configs.inference_time': {'get_config': ''},
  'configs.mixer_base16_cifar10': {'get_config': ''},
  'configs.models': {
    'AUGREG_CONFIGS': '',
    'MODEL_CONFIGS': '',
    **{f'get_{name}_config': '' for name in _MODEL_GETTERS.split()},
  },
  'configs.vit': {'get_config': 'model_dataset'},
  'inference_time': {'inference_time': 'config workdir'},
  'models': {
    'AddPositionEmbs': 'posemb_init',
    'Encoder': 'num_layers mlp_dim num_heads dropout_rate attention_dropout_rate'
    ' add_position_embedding',
    'Encoder1DBlock': 'mlp_dim num_heads dtype dropout_rate attention_dropout_rate',
    'LitModel': 'image text_model text pp out_dim model_name',
    'MlpBlock': 'mlp_dim dtype out_dim dropout_rate kernel_init bias_init',
    'MlpMixer': 'patches num_classes num_blocks hidden_dim tokens_mlp_dim'
    ' channels_mlp_dim model_name',
    'VisionTransformer': 'num_classes patches transformer hidden_size resnet'
    ' representation_size classifier head_bias_init encoder model_name',
    'get_model': 'name',
  },
  'models_lit': {
    'BertModel': 'config num_classes',
    'LitModel': 'image text_model text pp out_dim model_name',
    'TextTransformer': 'num_classes width num_layers mlp_dim num_heads dropout_rate'
    ' vocab_size',
  },
  'models_mixer': {
    'MixerBlock': 'tokens_mlp_dim channels_mlp_dim',
    'MlpBlock': 'mlp_dim',
    'MlpMixer': 'patches num_classes num_blocks hidden_dim tokens_mlp_dim'
    ' channels_mlp_dim model_name',
  },
  'models_resnet': {
    'ResNetStage': 'block_size nout first_stride',
    'ResidualUnit': 'features strides',
    'StdConv': '',
    'weight_standardize': 'w axis eps',
  },
  'models_vit': {
    'IdentityLayer': '',
    'AddPositionEmbs': 'posemb_init',
    'Encoder': 'num_layers mlp_dim num_heads dropout_rate attention_dropout_rate'
    ' add_position_embedding',
    'Encoder1DBlock': 'mlp_dim num_heads dtype dropout_rate attention_dropout_rate',
    'MlpBlock': 'mlp_dim dtype out_dim dropout_rate kernel_init bias_init',
    'VisionTransformer': 'num_classes patches transformer hidden_size resnet'
    ' representation_size classifier head_bias_init encoder model_name',
  },
  'train': {
    'make_update_fn': 'apply_fn accum_steps tx',
    'train_and_evaluate': 'config workdir',
  },
}


def arguments(thing):
  """Returns the names of arguments of a function, or of fields of a module."""
  if isinstance(thing, type) and issubclass(thing, nn.Module):
    return list(thing.__dataclass_fields__)
  return list(inspect.signature(thing).parameters) if callable(thing) else []


@pytest.mark.parametrize(
  'module, name, want',
  [
    (m, name, want)
    for m, rows in OFFICIAL.items()
    for name, want in rows.items()
  ],
)
def test_an_official_name_has_its_arguments_or_is_replaced(module, name, want):
  where = f'vit_jax.{module}'
  found = importlib.import_module(where)
  if not hasattr(found, name):
    assert official.replacement(where, name)
    return
  have = arguments(getattr(found, name))
  if isinstance(getattr(found, name), type):  # Fields are given by name.
    assert set(want.split()) <= set(have)
  else:
    assert have[: len(want.split())] == want.split()


def test_what_replaces_an_official_name_exists():
  texts = ' '.join(
    x for rows in official.REPLACED.values() for x in rows.values()
  )
  paths = re.findall(r'vit_jax(?:\.\w+)+', texts)
  assert len(paths) > 10
  for path in paths:
    assert pydoc.locate(path), path


@pytest.mark.parametrize(
  'module', ['gsam', 'input_pipeline', 'preprocess', 'test_utils', 'utils']
)
def test_an_official_module_without_counterpart_is_an_import_error(module):
  with pytest.raises(ImportError, match='is replaced by'):
    exec(f'from vit_jax import {module}')
