"""Random ViTs of timm, both ways. Runs only where PyTorch and timm are installed."""

import json
import random
import re

import live
import numpy as np
import pytest

from vit_jax import checkpoint
from vit_jax.runtime import errors
from vit_jax.weights import adaptation
from vit_jax.weights import formats
from vit_jax.weights import infer
from vit_jax.weights import other_models
from vit_jax.weights import resized_positions
from vit_jax.weights.timm import architectures

torch = pytest.importorskip('torch')
timm = pytest.importorskip('timm')


def plain(rng):
  """Returns an architecture and arguments of all parts."""
  heads, patch = rng.randint(1, 4), rng.choice([4, 8, [4, 8]])
  class_token = rng.random() < 0.6
  pool = rng.choice(['avg', 'map', 'token' if class_token else 'avg'])
  is_gated = pool != 'map' and rng.random() < 0.2
  if is_gated:
    architecture = 'vit_giant_patch14_dinov2'
  else:
    architecture = rng.choice(
      ['vit_base_patch16_224', 'vit_base_patch16_clip_224']
    )
  arguments = {
    'img_size': rng.choice([16, 24, [16, 32], [24, 16]]),
    'patch_size': patch,
    'in_chans': rng.choice([1, 3]),
    'embed_dim': heads * rng.choice([4, 8, 10]),
    'depth': rng.randint(1, 3),
    'num_heads': heads,
    'mlp_ratio': rng.choice([2, 3.5, 4]),
    'class_token': class_token,
    'global_pool': pool,
    'reg_tokens': rng.choice([0, 1, 3]),
    'no_embed_class': rng.random() < 0.5,
    'pre_norm': rng.random() < 0.3,
    'qkv_bias': rng.random() < 0.7,
    'init_values': rng.choice([None, 1e-5, 0.1]),
    'dynamic_img_size': rng.random() < 0.3,
    'num_classes': rng.choice([0, 5]),
  }
  if rng.random() < 0.4:
    arguments['fc_norm'] = rng.random() < 0.5
  if not is_gated and rng.random() < 0.6:
    arguments['act_layer'] = rng.choice(['gelu', 'gelu_tanh', 'quick_gelu'])
  return architecture, arguments


def common(rng, widths):
  """Returns arguments that all architectures take, and whether classes."""
  heads = rng.randint(1, 4)
  return {
    'img_size': rng.choice([16, 24, [16, 32], [24, 16]]),
    'patch_size': rng.choice([4, 8, [4, 8]]),
    'in_chans': rng.choice([1, 3]),
    'embed_dim': heads * rng.choice(widths),
    'depth': rng.randint(1, 3),
    'num_heads': heads,
    'mlp_ratio': rng.choice([2, 3.5, 4]),
    'dynamic_img_size': rng.random() < 0.3,
    'num_classes': rng.choice([0, 5]),
  }


def some(rng, arguments):
  """Returns random ones of the arguments; the architecture says the others."""
  return {k: v for k, v in arguments.items() if rng.random() < 0.4}


def dinov2(rng):
  """Returns the architecture of a DINOv2 and arguments."""
  architecture = rng.choice(
    [
      *('vit_small_patch14_dinov2', 'vit_small_patch14_reg4_dinov2'),
      *('vit_giant_patch14_dinov2', 'vit_giant_patch14_reg4_dinov2'),
    ]
  )
  options = {
    'reg_tokens': rng.choice([0, 1, 3]),
    'no_embed_class': rng.random() < 0.5,
    'qkv_bias': rng.random() < 0.5,
    'init_values': rng.choice([1e-5, 0.1]),
    'global_pool': rng.choice(['avg', 'token']),
  }
  return architecture, common(rng, [4, 8, 12]) | some(rng, options)


def dinov3(rng):
  """Returns the architecture of a DINOv3, an `Eva`, and arguments."""
  architecture = rng.choice(
    [
      *('vit_small_patch16_dinov3', 'vit_large_patch16_dinov3_qkvb'),
      *('vit_small_plus_patch16_dinov3', 'vit_7b_patch16_dinov3'),
      'vit_huge_plus_patch16_dinov3_qkvb',
    ]
  )
  class_token = rng.random() < 0.8
  options = {
    'num_reg_tokens': rng.choice([0, 1, 3]),
    'class_token': class_token,
    'qkv_bias': rng.random() < 0.5,
    'qkv_fused': rng.random() < 0.5,
    'init_values': rng.choice([None, 0.1]),
    'global_pool': 'token' if class_token else 'avg',
    'use_fc_norm': rng.random() < 0.5,
    'swiglu_mlp': rng.random() < 0.5,
    'swiglu_align_to': rng.choice([0, 8]),
    'rope_temperature': rng.choice([30, 1000.0]),
    'use_pre_transformer_norm': rng.random() < 0.5,
  }
  arguments = common(rng, [4, 8, 12]) | some(rng, options)
  if not class_token:
    arguments['class_token'] = False
  return architecture, arguments


def packed(arrays):
  """Returns arrays with the two kernels of a SwiGLU in one, as timm may have them."""
  arrays = dict(arrays)
  for name in [name for name in arrays if '.fc1_g.' in name]:
    parts = arrays.pop(name), arrays.pop(name.replace('fc1_g', 'fc1_x'))
    arrays[name.replace('fc1_g', 'fc1')] = np.concatenate(parts)
  return arrays


def clip(rng):
  """Returns the architecture of an image tower of CLIP and arguments."""
  architecture = rng.choice(
    [
      *('vit_base_patch16_clip_224', 'vit_large_patch14_clip_quickgelu_224'),
      *('vit_base_patch32_clip_quickgelu_224', 'vit_huge_patch14_clip_224'),
    ]
  )
  return architecture, common(rng, [4, 8, 10])


def outputs(model, images):
  with torch.no_grad():
    return model(live.as_torch(images)).numpy()


def assert_transformers_agrees(weights, folder, images, want):
  """Checks outputs of a model in transformers, if it has that model."""
  transformers = pytest.importorskip('transformers')
  try:
    formats.convert(weights, str(folder), 'huggingface')
  except errors.UserError as e:
    print('refused:', e)
    return
  name = json.loads((folder / 'config.json').read_text())['architectures'][0]
  model = getattr(transformers, name).from_pretrained(folder).eval()
  with torch.no_grad():
    y = model(live.as_torch(images))
  pooled = y.get('logits', y.get('pooler_output'))
  if name == 'ViTModel':  # It draws a pooler.
    pooled = None
  elif weights.spec.pooling == 'token_gap':  # It is warned of.
    pooled = y.last_hidden_state[:, weights.spec.num_prefix_tokens :].mean(1)
  got = (y.last_hidden_state[:, 0] if pooled is None else pooled).numpy()
  print('difference to', name, np.abs(got - want).max())
  np.testing.assert_allclose(got, want, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize('seed', range(20))
@pytest.mark.parametrize('draw', [plain, dinov2, dinov3, clip])
def test_random_vits_equal_timm(tmp_path, draw, seed):
  architecture, arguments = draw(random.Random(seed))
  if arguments.get('class_token'):
    del arguments['class_token']
  model = live.perturbed(timm.create_model(architecture, **arguments), seed)
  saved = {k: v for k, v in arguments.items() if k != 'num_classes'}
  timm.models.save_for_hf(
    model, tmp_path / 'x', model_args=saved, safe_serialization=True
  )
  weights = checkpoint.read(tmp_path / 'x')
  size = weights.image_shape[:2]
  images = live.random_images(seed, size, arguments['in_chans'])
  want, got = outputs(model, images), live.output(weights, images)
  print('difference', draw.__name__, seed, np.abs(got - want).max())
  np.testing.assert_allclose(got, want, atol=1e-5, rtol=1e-5)

  what = weights.spec
  is_learned = what.position_embeddings and what.posemb_resize != 'zoom'
  if arguments['dynamic_img_size'] and (is_learned or draw == dinov3):
    larger = tuple(n + 8 for n in size)
    larger_images = live.random_images(seed, larger, arguments['in_chans'])
    ours = live.output(adaptation.at_size(weights, larger), larger_images)
    theirs = outputs(model, larger_images)
    np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=1e-5)

  formats.convert(weights, str(tmp_path / 'y'), 'timm')
  if arguments.get('qkv_fused', True):  # Written fused.
    pack = packed if draw == dinov3 else None
    live.assert_same_arrays(tmp_path / 'x', tmp_path / 'y', pack)
  again = timm.create_model(f'local-dir:{tmp_path}/y', pretrained=True).eval()
  # The arrays are equal; torch rounds as they lie in memory.
  np.testing.assert_allclose(outputs(again, images), want, atol=1e-6)
  assert checkpoint.read(tmp_path / 'y').model == {
    **weights.model,
    'model_name': 'x',
  }
  assert_transformers_agrees(weights, tmp_path / 'z', images, want)


def test_implied_arguments_are_those_of_timm():
  """What names of released architectures imply is what timm builds for them."""
  for name in (*_models('vision_transformer'), *_models('deit')):
    if re.search('aimv2|beit3|_xp_|18x2|pwee|_rpn_', name):
      continue  # Their arrays are refused.
    with torch.device('meta'):
      model = timm.create_model(name, num_classes=0, depth=1)
    known = architectures.arguments({'architecture': name})
    heads, width = model.blocks[0].attn.num_heads, model.embed_dim
    usual = known.get('num_heads') or infer.known_num_heads(
      width, has_config=False
    )
    assert usual == heads, name
    epsilon = known.get(architectures.NORM_EPSILON, architectures.EPSILON)
    assert epsilon == model.blocks[0].norm1.eps, name
    act = {'GELU': 'gelu', 'GELUTanh': 'gelu_tanh', 'QuickGELU': 'quick_gelu'}
    kind = type(model.blocks[0].mlp.act).__name__
    assert act.get(kind, 'gelu') == known.get('act_layer', 'gelu'), name
    includes = known.get('pool_include_prefix', False)
    assert model.pool_include_prefix == includes, name


def test_rotations_are_refused_but_those_of_dinov3():
  for name in _models('eva'):
    known = architectures.arguments({'architecture': name})
    is_read = other_models.reason(name) is None
    assert is_read == (known.get('rope_type') == 'dinov3'), name


def test_only_models_that_cannot_be_read_are_named():
  for module in ('vision_transformer', 'deit', 'mlp_mixer'):
    for name in timm.list_models(module=module):
      is_other = re.search(
        'aimv2|beit3|_relpos|18x2|_xp_|pwee|_rpn_|gmlp|resmlp|gmixer', name
      )
      assert bool(other_models.reason(name)) == bool(is_other), name


def _models(module):
  """Returns names of architectures, without hybrids."""
  names = timm.list_models(module=module)
  return [name for name in names if not re.search(r'_r\d*_s', name)]


def test_resizing_equals_pytorch():
  rng = random.Random(0)
  modes = {
    'bicubic': {'mode': 'bicubic'},
    'bicubic_antialias': {'mode': 'bicubic', 'antialias': True},
    'bilinear_antialias': {'mode': 'bilinear', 'antialias': True},
  }
  for seed in range(50):
    old = rng.randint(1, 20), rng.randint(1, 20)
    # PyTorch 2.13 is wrong where one column remains.
    new = rng.randint(1, 30), rng.randint(2, 30)
    x = np.random.default_rng(seed).normal(0, 0.1, (*old, 3))
    x = x.astype(np.float32)
    images = torch.tensor(x.transpose(2, 0, 1)[None])
    for method, mode in modes.items():
      want = torch.nn.functional.interpolate(images, size=new, **mode)[0]
      np.testing.assert_allclose(
        resized_positions.resize(x, new, method),
        want.numpy().transpose(1, 2, 0),
        atol=2e-6,
      )
