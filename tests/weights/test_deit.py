"""ViT, DeiT and MAE of transformers: outputs, round trips, what is refused."""

import json

from golden_files import GOLDEN
from golden_files import golden_json
from made import applied
from made import assert_same
from made import copied
from made import random_weights
from made import VIT
import numpy as np
import pytest

from vit_jax import checkpoint
from vit_jax.runtime import errors
from vit_jax.weights import array_files
from vit_jax.weights import formats
from vit_jax.weights import to_huggingface

NAMES = (
  'hf_deit',
  'hf_deit_model',
  'hf_deit_teacher',
  'hf_ijepa',
  'hf_vit_mae',
  'hf_vit_no_bias',
)

DEIT = VIT | {'distillation': 'head'}


@pytest.mark.parametrize('name', [*NAMES, 'hf_vit_msn'])
def test_outputs_equal_transformers(name):
  weights = checkpoint.read(GOLDEN / name)
  with np.load(GOLDEN / name / 'io.npz') as io:
    got = applied(weights, io['inputs'])
    np.testing.assert_allclose(got, io['outputs'], atol=1e-5)
    assert weights.image_shape == io['inputs'].shape[1:]


@pytest.mark.parametrize('name', NAMES)
def test_export_undoes_read(name):
  arrays, contents = to_huggingface.export(checkpoint.read(GOLDEN / name))
  original = array_files.read_safetensors(GOLDEN / name)
  if name == 'hf_vit_mae':  # Only the encoder is read.
    original = {
      name.removeprefix('vit.'): x
      for name, x in original.items()
      if not name.startswith('decoder.')
    }
  assert_same(arrays, original)
  have, want = contents['config.json'], golden_json(f'{name}/config.json')
  have = json.loads(json.dumps(have))
  if name == 'hf_vit_mae':
    assert have['architectures'] == ['ViTMAEModel']
    have['architectures'] = want['architectures']
  named = have.keys() & want.keys() - {'pooler_output_size'}
  assert {k: have[k] for k in named} == {k: want[k] for k in named}
  assert {'model_type', 'qkv_bias', 'hidden_act', 'patch_size'} <= named


def test_msn_is_written_as_a_vit(tmp_path):
  weights = checkpoint.read(GOLDEN / 'hf_vit_msn')
  formats.convert(weights, str(tmp_path / 'x'), 'huggingface')
  assert golden_json(tmp_path / 'x' / 'config.json')['model_type'] == 'vit'
  again = checkpoint.read(tmp_path / 'x')
  assert_same(again.params, weights.params)
  assert again.model['posemb_resize'] == weights.model['posemb_resize']


def test_arrays_tell_what_a_config_leaves_out(tmp_path):
  # Square patches: nothing else tells the sides of an image.
  folder = copied('hf_vit_mae', tmp_path / 'x')
  want = checkpoint.read(folder)
  config = {'model_type': 'vit_mae', 'num_attention_heads': 2}
  (folder / 'config.json').write_text(json.dumps(config))
  weights = checkpoint.read(folder)
  assert_same(weights.params, want.params)
  assert weights.model == want.model
  assert weights.preprocessing == want.preprocessing


@pytest.mark.parametrize(
  'name, settings, message',
  [
    (
      'hf_vit_model',
      {'pooler_act': 'relu'},
      "pooler with the activation 'relu'",
    ),
    ('hf_deit', {'model_type': 'vit'}, 'No such model has deit.embeddings.cls'),
    ('hf_deit', {'hidden_act': 'relu'}, "activation 'relu'; known are"),
    ('hf_deit', {'num_attention_heads': 3}, 'width 16, which 3 heads do not'),
  ],
)
def test_wrong_configs_are_refused(tmp_path, name, settings, message):
  folder = copied(name, tmp_path / 'x')
  config = json.loads((folder / 'config.json').read_text())
  (folder / 'config.json').write_text(json.dumps(config | settings))
  with pytest.raises(errors.UserError, match=message):
    checkpoint.read(folder)


@pytest.mark.parametrize('num_classes', [0, 5])
def test_distilled_models_come_back_from_timm(tmp_path, num_classes):
  weights = random_weights(DEIT, num_classes=num_classes)
  formats.convert(weights, str(tmp_path / 'x'), 'timm')
  again = checkpoint.read(tmp_path / 'x')
  assert_same(again.params, weights.params)
  # Without heads too, the outputs of timm are means of both tokens.
  assert again.model['distillation'] == 'head'


@pytest.mark.parametrize(
  'changes, kind, architecture',
  [
    ({}, 'vit', 'ViTForImageClassification'),
    ({'posemb_resize': 'bicubic'}, 'vit', 'ViTForImageClassification'),
    ({'distillation': 'token'}, 'deit', 'DeiTForImageClassification'),
    (DEIT, 'deit', 'DeiTForImageClassificationWithTeacher'),
    ({'num_classes': 0}, 'vit', 'ViTModel'),
    ({'num_classes': 0, 'posemb_resize': 'bicubic'}, 'vit_mae', 'ViTMAEModel'),
    (
      {'classifier': 'gap', 'posemb_resize': 'bicubic'},
      'ijepa',
      'IJepaForImageClassification',
    ),
    (
      {'classifier': 'gap', 'posemb_resize': 'bicubic', 'num_classes': 0},
      'ijepa',
      'IJepaModel',
    ),
  ],
)
def test_exported_family_loses_nothing(tmp_path, changes, kind, architecture):
  weights = random_weights(VIT, **changes)
  formats.convert(weights, str(tmp_path / 'x'), 'huggingface')
  config = json.loads((tmp_path / 'x' / 'config.json').read_text())
  assert config['model_type'] == kind
  assert config['architectures'] == [architecture]
  again = checkpoint.read(tmp_path / 'x')
  assert_same(again.params, weights.params)
  want = changes.get('posemb_resize', 'zoom')
  assert again.spec.posemb_resize == want
