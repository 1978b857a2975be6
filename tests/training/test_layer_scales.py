"""Blocks far from the head learn more slowly."""

import re

import flax.traverse_util
import jax.numpy as jnp
import pytest

from vit_jax import models
from vit_jax.models import blocks
from vit_jax.runtime import errors
from vit_jax.training import optimizers


@pytest.mark.parametrize('scan', [False, True])
def test_layer_scales_decay_away_from_head(scan):
  model = models.get_model('testing', num_classes=3, representation_size=4)
  params = models.init_params(model, (32, 32, 3))
  depth = sum('encoderblock' in name for name in params['Transformer'])
  scales = optimizers.layer_scales(
    blocks.stack(params) if scan else params, 0.5
  )
  if scan:
    block = scales['Transformer']['encoderblock']['MlpBlock_0']['Dense_0']
    assert block['kernel'].shape == (depth, 1, 1)
    got = block['kernel'].ravel().tolist()
  else:
    got = [
      scales['Transformer'][f'encoderblock_{i}']['LayerNorm_0']['scale']
      for i in range(depth)
    ]
  assert got == [0.5 ** (depth - i) for i in range(depth)]
  assert scales['head']['kernel'] == scales['pre_logits']['bias'] == 1
  assert scales['Transformer']['encoder_norm']['scale'] == 1
  first = 0.5 ** (depth + 1)
  assert scales['cls'] == scales['embedding']['kernel'] == first
  assert scales['Transformer']['posembed_input']['pos_embedding'] == first


@pytest.mark.parametrize('name', ['r_ti16', 'mixer_b32'])
def test_layer_decay_counts_blocks_of_all_families(name):
  model = models.get_model(name, num_classes=3)
  params = models.abstract_params(model, (64, 64, 3))
  scales = flax.traverse_util.flatten_dict(
    optimizers.layer_scales(params, 0.5), sep='/'
  )
  for path, scale in scales.items():
    block = re.search(r'(encoderblock|MixerBlock)_(\d+)/', path)
    last = re.search('^head|encoder_norm|pre_head', path)
    want = 12 - int(block[2]) if block else 0 if last else 13
    assert scale == 0.5**want, path


@pytest.mark.parametrize('name', ['lit_b16b', 'r50x1'])
def test_refuses_layer_decay_without_single_row_of_blocks(name):
  params = {
    'lit_b16b': {
      'img': {'Transformer': {'encoderblock_0': {'bias': jnp.ones(2)}}},
      't': jnp.ones(1),
    },
    'r50x1': {'block1': {'unit1': {'conv1': {'kernel': jnp.ones(2)}}}},
  }[name]
  with pytest.raises(errors.UserError, match='layer_decay is 0.5, must be 1'):
    optimizers.layer_scales(params, 0.5)
