"""Models that are not read are refused by what they are and what is missing."""

import json
import re

from golden_files import GOLDEN
from golden_files import golden_json
import numpy as np
import pytest
import safetensors.numpy

from vit_jax import checkpoint
from vit_jax.runtime import errors
from vit_jax.weights import families
from vit_jax.weights import other_models

# (model_type of transformers, architecture of timm, message); '' for none.
MODELS = (
  ('', 'naflexvit_base_patch16_siglip', 'a NaFlex .* images of several shapes'),
  ('wav2vec2', '', 'a model of sounds'),
  ('clip_text_model', '', 'a text tower; no model here has texts without'),
  ('siglip_text_model', '', 'a text tower'),
  ('swin', 'swin_tiny_patch4_window7_224', 'a Swin; .* shifted windows'),
  ('swinv2', 'swinv2_tiny_window8_256', 'a Swin'),
  ('', 'beit3_base_patch16_224', 'a BEiT-3; .* LayerNorm inside'),
  ('beit', 'beitv2_base_patch16_224', 'a BEiT .* with relative positions'),
  ('data2vec-vision', 'vit_relpos_base_patch16_224', 'relative positions'),
  ('sam', 'samvit_base_patch16', 'an encoder of SAM .* in windows with rel'),
  ('sam2_vision_model', 'sam2_hiera_tiny', 'an encoder of SAM'),
  ('', 'eva02_base_patch14_224', 'an EVA .* its rotations of queries'),
  ('', 'eva_giant_patch14_224', 'an EVA; .* without rotations'),
  ('', 'vit_small_patch16_18x2_224', 'parallel parts; .* than one attention'),
  ('', 'vit_base_patch16_rpn_224', 'residual post-norm; .* before their'),
  ('', 'vit_base_patch16_rope_mixed_224', 'an EVA .* its rotations'),
  ('', 'maxvit_tiny_rw_224', 'a MaxViT .* convolutions between'),
  ('hiera', 'hiera_tiny_224', 'a Hiera .* stages of different widths'),
  ('pvt_v2', 'pvt_v2_b0', 'stages of different widths'),
  ('', 'edgenext_small', 'stages of different widths'),
  ('dinov3_convnext', 'convnext_tiny', 'a convolutional network'),
  ('resnet', 'resnet50', 'a convolutional network'),
  ('mobilenet_v2', 'ecaresnext50t_32x4d', 'a convolutional network'),
  ('', 'resmlp_12_224', 'an MLP, but no Mixer'),
  ('', 'xcit_nano_12_p16_224', 'a relative of DeiT'),
  ('aimv2_vision_model', 'aimv2_large_patch14_224', 'an AIMv2; .* RMSNorm'),
  ('videomae', '', 'a model of videos; no model here has frames'),
  ('dpt', '', 'a model of boxes, masks or depths; .* its decoder'),
  ('yolos', '', 'a model of boxes'),
  ('blip', '', 'neither CLIP nor SigLIP; .* its other tower or its decoder'),
  ('paligemma', '', 'save that alone by its save_pretrained'),
  ('qwen2_vl', '', 'neither CLIP nor SigLIP'),
  ('bert', '', 'a model of texts; no model here has texts without images'),
  ('xlm-roberta', '', 'a model of texts'),
  ('timm_wrapper', '', 'inside transformers; .* timm.models.save_for_hf'),
)


def saved(folder, config, arrays=None):
  """Writes what all libraries write: arrays and a config.json."""
  folder.mkdir()
  (folder / 'config.json').write_text(json.dumps(config))
  arrays = arrays or {'layers.0.weight': np.ones((2, 2), np.float32)}
  safetensors.numpy.save_file(arrays, folder / 'model.safetensors')
  return folder


@pytest.mark.parametrize('kind, architecture, message', MODELS)
def test_models_are_refused_by_name(tmp_path, kind, architecture, message):
  configs = {'model_type': kind, 'architecture': architecture}
  for key, name in configs.items():
    if name:
      folder = saved(tmp_path / key, {key: name})
      with pytest.raises(errors.UserError, match=message) as e:
        checkpoint.read(folder)
      assert name in str(e.value)
      assert '\n' not in str(e.value)


def test_every_row_is_tested():
  names = {name for *row, _ in MODELS for name in row if name}
  for pattern, *_ in other_models.ROWS:
    assert any(re.fullmatch(pattern, name) for name in names), pattern


def test_models_that_are_read_have_no_row():
  for kind in families.kinds():
    assert other_models.reason(kind) is None
  # A plain ViT, whatever its name.
  assert other_models.reason('eva_large_patch14_196') is None
  for config in GOLDEN.glob('timm_*/config.json'):
    name = golden_json(config.relative_to(GOLDEN))['architecture']
    assert other_models.reason(name) is None


@pytest.mark.parametrize('dtype', [np.int8, np.uint8, np.int32])
def test_quantised_arrays_are_refused(tmp_path, dtype):
  arrays = {'layer.weight': np.ones((2, 2), dtype)}
  folder = saved(tmp_path / 'x', {'model_type': 'vit'}, arrays)
  with pytest.raises(
    errors.UserError, match=r'quantised: .* layer\.weight has'
  ):
    checkpoint.read(folder)
