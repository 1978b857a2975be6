"""CLIPs of open_clip give its outputs; others are refused by name."""

import json

from golden_files import GOLDEN
from golden_files import golden_arrays
from golden_files import golden_json
from made import applied
from made import assert_same
import numpy as np
import pytest

from vit_jax import checkpoint
from vit_jax import models
from vit_jax.runtime import errors
from vit_jax.weights import formats
from vit_jax.weights import open_clip

NAMES = ('open_clip', 'open_clip_unusual')
FILE = 'open_clip_model.safetensors'


@pytest.mark.parametrize('name', NAMES)
def test_outputs_are_those_of_open_clip(name):
  weights, io = checkpoint.read(GOLDEN / name), golden_arrays(f'{name}/io.npz')
  zimg, ztxt, out = applied(weights, images=io['images'], tokens=io['tokens'])
  np.testing.assert_allclose(zimg, io['zimg'], atol=1e-5)
  np.testing.assert_allclose(ztxt, io['ztxt'], atol=1e-5)
  logits = models.similarities(zimg, ztxt, out)
  np.testing.assert_allclose(logits, io['logits'], atol=1e-5)
  record, is_usual = weights.preprocessing, name == 'open_clip'
  assert record.interpolation == 'bicubic'
  assert weights.spec.posemb_resize == 'bicubic_antialias'
  assert record.resize_test == (16 if is_usual else None)
  assert weights.loss == ('softmax' if is_usual else 'sigmoid')
  tokenizer = weights.model['pp']['tokenizer_name']
  assert tokenizer == ('open_clip' if is_usual else 'bert')
  assert_same(checkpoint.read(GOLDEN / name / FILE).params, weights.params)


def test_transformers_takes_the_usual_ones(tmp_path):
  weights = checkpoint.read(GOLDEN / 'open_clip')
  formats.convert(weights, str(tmp_path / 'x'), 'huggingface')
  again = checkpoint.read(tmp_path / 'x')
  assert_same(again.params, weights.params)
  assert again.model['pp'] == weights.model['pp']
  unusual = checkpoint.read(GOLDEN / 'open_clip_unusual')
  with pytest.raises(errors.UserError, match='transformers has no model with'):
    formats.convert(unusual, str(tmp_path / 'y'), 'huggingface')


@pytest.mark.parametrize(
  'tower, changes, message',
  [
    ('vision_cfg', {'timm_model_name': 'vit'}, "timm_model_name='vit'"),
    ('vision_cfg', {'layers': [3, 4, 6, 3]}, 'a ResNet'),
    ('vision_cfg', {'pool_type': 'none'}, "pool_type='none'"),
    ('text_cfg', {'hf_model_name': 'roberta'}, "hf_model_name='roberta'"),
    ('text_cfg', {'hf_tokenizer_name': 'x/t5'}, "tokenizer_name='x/t5'"),
    ('text_cfg', {'pool_type': 'first'}, "pool_type='first'"),
    ('multimodal_cfg', {}, 'a CoCa'),
  ],
)
def test_other_architectures_are_refused_by_name(tower, changes, message):
  config = golden_json('open_clip/open_clip_config.json')
  config['model_cfg'].setdefault(tower, {}).update(changes)
  with pytest.raises(errors.UserError, match=message):
    open_clip.from_state_dict({}, config)


def test_a_file_needs_its_config(tmp_path):
  file = tmp_path / FILE
  file.write_bytes((GOLDEN / 'open_clip' / FILE).read_bytes())
  with pytest.raises(errors.UserError, match='beside it its open_clip_config'):
    checkpoint.read(file)
  config = golden_json('open_clip/open_clip_config.json')
  (tmp_path / 'open_clip_config.json').write_text(json.dumps(config))
  assert checkpoint.read(tmp_path).model['image']['projection'] == 12
