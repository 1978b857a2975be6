"""A `ModelSpec` says of every released model what its parameters say."""

import math
import re

from golden_files import golden_json
import jax
import pytest

from vit_jax import models
from vit_jax.configs import models as model_configs
from vit_jax.configs import spec

RELEASED = golden_json('released_models.json.gz')
SIZE = (224, 224)


@pytest.mark.parametrize('name', RELEASED)
def test_of_agrees_with_released_parameters(name):
  model = spec.of(model_configs.MODEL_CONFIGS[name])
  shapes = RELEASED[name]['params']
  assert model.has_texts == any(n.startswith('txt/') for n in shapes)
  if model.has_texts:
    shapes = {n[4:]: x for n, x in shapes.items() if n.startswith('img/')}
  assert model.name == name
  assert model.first_kernel in spec.FIRST_KERNELS
  if model.stem_units is None:
    assert shapes[model.first_kernel] == [*model.patch_size, 3, model.width]
  else:
    assert shapes[model.first_kernel] == [7, 7, 3, 64]
    stages = {n.split('/')[0] for n in shapes if n.startswith('block')}
    assert len(stages) == len(model.stem_units)
  assert model.block in spec.BLOCKS
  blocks = {
    m[1] for n in shapes if (m := re.search(rf'\b{model.block}_(\d+)/', n))
  }
  assert len(blocks) == model.depth
  assert any(n.endswith(f'{model.last_norm}/scale') for n in shapes)
  heads = [x[0] for n, x in shapes.items() if n.endswith('query/bias')]
  assert heads == [model.num_heads] * (model.depth if model.num_heads else 0)
  assert model.num_prefix_tokens == ('cls' in shapes)
  tokens = model.num_tokens(SIZE)
  if model.token_mixing:
    assert shapes[model.token_mixing][0] == tokens
  assert bool(model.token_mixing) == (not model.position_embeddings)
  if model.position_embeddings:
    assert shapes[model.position_embeddings] == [1, tokens, model.width]
  assert model.grid(model.image_size((3, 5))) == (3, 5)


@pytest.mark.parametrize(
  'name', ['R+ViT-Ti_16', 'R26+ViT-S_32', 'Mixer-B_16', 'ViT-Ti_16']
)
@pytest.mark.parametrize('size', [(64, 64), (97, 130)])
def test_num_tokens_equals_tokens_of_module(name, size):
  config = model_configs.MODEL_CONFIGS[name]
  module = models.from_config(config, num_classes=None)
  model = spec.of_module(module)
  assert model == spec.of(config)
  shapes = models.abstract_params(module, (*size, 3))
  tokens = model.num_tokens(size)
  assert tokens == model.num_prefix_tokens + math.prod(model.grid(size))
  names = {
    jax.tree_util.keystr(path, simple=True, separator='/'): x.shape
    for path, x in jax.tree_util.tree_leaves_with_path(shapes)
  }
  if model.token_mixing:
    assert names[model.token_mixing][0] == tokens
  else:
    assert names[model.position_embeddings][1] == tokens


def test_of_resnet_alone_has_no_blocks():
  config = golden_json('index.json')['resnet_only_gap']['config']
  model = spec.of(config)
  assert (model.depth, model.num_heads, model.last_norm) == (0, 0, '')
  assert model.first_kernel == 'conv_root/kernel'
  assert not model.position_embeddings
  assert spec.encoder(config) is None


def test_of_reads_pooling_norm_and_representation():
  config = model_configs.get_model_config('testing').to_dict()
  config |= {'classifier': 'gap', 'fc_norm': True, 'representation_size': 7}
  model = spec.of(config)
  assert (model.pooling, model.num_prefix_tokens) == ('gap', 0)
  assert (model.last_norm, model.representation_size) == ('', 7)


def test_has_texts_is_false_without_model():
  assert not spec.has_texts(None)
