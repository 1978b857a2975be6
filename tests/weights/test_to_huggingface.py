"""What transformers lacks of a model, and what is written nevertheless."""

import dataclasses
import json
import re

from golden_files import GOLDEN
import live
from made import assert_same
from made import random_weights
from made import VIT
import numpy as np
import pytest

from vit_jax import checkpoint
from vit_jax.configs import images
from vit_jax.runtime import errors
from vit_jax.weights import array_files
from vit_jax.weights import formats
from vit_jax.weights import pillow_filters
from vit_jax.weights import to_huggingface


@pytest.mark.parametrize('to', ['huggingface', 'timm'])
@pytest.mark.parametrize('interpolation', images.INTERPOLATIONS)
def test_interpolations_are_filters_of_pillow_elsewhere(
  tmp_path, to, interpolation
):
  weights = random_weights(VIT, size=32)
  how = dataclasses.replace(weights.preprocessing, interpolation=interpolation)
  weights = dataclasses.replace(weights, preprocessing=how)
  formats.convert(weights, str(tmp_path / 'x'), to)
  assert checkpoint.read(tmp_path / 'x').preprocessing == how
  # The official filter is not Pillow's, so we keep it beside the nearest one.
  path = tmp_path / 'x' / 'config.json'
  config = json.loads(path.read_text())
  del config['vit_jax_weights']
  path.write_text(json.dumps(config))
  plain = checkpoint.read(tmp_path / 'x').preprocessing.interpolation
  assert plain == {'bilinear': 'bilinear_antialias'}.get(
    interpolation, interpolation
  )


def test_filters_that_are_not_supported_warn(caplog):
  for pillow, ours in (
    (2, 'bilinear_antialias'),
    ('bilinear', 'bilinear_antialias'),
    (3, 'bicubic'),
    (None, None),
    ('random', None),
  ):
    assert pillow_filters.interpolation(pillow, 'x') == ours
  assert not caplog.text
  assert pillow_filters.interpolation(1, 'x') == 'bicubic'
  assert 'x: images were resized by the filter lanczos, which' in caplog.text


def pooled(name, classifier):
  weights = checkpoint.read(GOLDEN / name)
  model = {**weights.model, 'classifier': classifier}
  return dataclasses.replace(weights, model=model)


@pytest.mark.parametrize(
  'name, classifier, architecture',
  [
    ('hf_vit_mae', 'token_gap', 'ViTMAEModel'),
    ('hf_dinov3', 'token_unpooled', 'DINOv3ViTModel'),
    ('clip_projected', 'token_gap', 'CLIPVisionModelWithProjection'),
  ],
)
def test_other_pooling_is_written_with_a_warning(
  tmp_path, caplog, name, classifier, architecture
):
  weights = pooled(name, classifier)
  formats.convert(weights, str(tmp_path / 'x'), 'huggingface')
  [message] = [r.getMessage() for r in caplog.records]
  assert re.search(
    f"pool by '{classifier}', but {architecture} .* by 'token': its", message
  )
  config = json.loads((tmp_path / 'x' / 'config.json').read_text())
  assert config['architectures'] == [architecture]
  again = checkpoint.read(tmp_path / 'x')
  assert again.spec.pooling == classifier
  assert_same(again.params, weights.params)


def test_pooling_of_a_timm_dinov3_is_written(tmp_path):
  """Its default is the mean of the patches."""
  weights = checkpoint.read(GOLDEN / 'timm_dinov3')
  params = {k: x for k, x in weights.params.items() if k != 'head'}
  headless = dataclasses.replace(
    weights,
    params=params,
    class_names=[],
    model={**weights.model, 'classifier': 'token_gap'},
  )
  formats.convert(headless, str(tmp_path / 'x'), 'huggingface')
  again = checkpoint.read(tmp_path / 'x')
  images = live.random_images(0, weights.image_shape[:2])
  np.testing.assert_array_equal(
    live.output(again, images), live.output(headless, images)
  )
  arrays = array_files.read_safetensors(tmp_path / 'x')
  assert arrays['embeddings.register_tokens'].size


@pytest.mark.parametrize(
  'changes, message',
  [
    ({'classifier': 'token_gap'}, 'no model with classifier=token_gap'),
    ({'classifier': 'token_map'}, 'no model with classifier=token_map'),
  ],
)
def test_pooling_before_a_head_or_by_attention_is_refused(changes, message):
  num_classes = 0 if 'map' in message else 5
  weights = random_weights(VIT, num_classes=num_classes, **changes)
  with pytest.raises(errors.UserError, match=message):
    to_huggingface.export(weights)


@pytest.mark.parametrize(
  'name, size, patch, message',
  [
    ('clip_image', (16, 24), (8, 8), r'image_size=\(16, 24\)'),
    ('clip_image', (16, 16), (8, 4), r'patch_size=\(8, 4\)'),
    ('siglip_image', (24, 16), (8, 8), r'image_size=\(24, 16\)'),
    ('hf_dinov2', (16, 24), (8, 8), r'image_size=\(16, 24\)'),
    ('hf_dinov3', (16, 24), (8, 4), ''),
  ],
)
def test_squares_are_named_where_transformers_needs_them(
  name, size, patch, message
):
  model = dict(checkpoint.read(GOLDEN / name).model)
  model['patches'] = {**model['patches'], 'size': patch}
  weights = random_weights(model, num_classes=0, shape=(*size, 3))
  if not message:
    config = to_huggingface.export(weights)[1]['config.json']
    assert config['image_size'] == [16, 24]
    return
  with pytest.raises(errors.UserError, match=f'no model with {message}. Try'):
    to_huggingface.export(weights)
