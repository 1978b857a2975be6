"""SigLIP equals an installed transformers and timm, for random sizes."""

import jax
from made import assert_same
import numpy as np
import pytest

from vit_jax import checkpoint
from vit_jax import models
from vit_jax.weights import array_files
from vit_jax.weights import formats

torch = pytest.importorskip('torch')
transformers = pytest.importorskip('transformers')
timm = pytest.importorskip('timm')

SEEDS = pytest.mark.parametrize('seed', range(20))
OUTPUTS = {
  'SiglipModel': 'logits_per_image',
  'SiglipVisionModel': 'pooler_output',
  'SiglipForImageClassification': 'logits',
}


def random_tower(rng):
  heads = int(rng.integers(1, 5))
  return {
    'hidden_size': int(heads * rng.integers(1, 4) * 4),
    'num_hidden_layers': int(rng.integers(1, 4)),
    'num_attention_heads': heads,
    'intermediate_size': int(rng.integers(8, 65)),
    'hidden_act': str(rng.choice(['gelu', 'gelu_pytorch_tanh', 'quick_gelu'])),
    'layer_norm_eps': float(rng.choice([1e-6, 1e-5, 1e-3])),
  }


def random_model(rng, name):
  """Returns a model of transformers and its inputs."""
  patch, grid = int(rng.integers(2, 9)), int(rng.integers(1, 6))
  size = patch * grid + int(rng.integers(patch))  # So400m/14 has 384 pixels.
  channels = int(rng.choice([1, 3, 4]))
  vision = random_tower(rng) | {
    'patch_size': patch,
    'image_size': size,
    'num_channels': channels,
  }
  text = random_tower(rng) | {
    'vocab_size': int(rng.integers(20, 99)),
    'max_position_embeddings': int(rng.integers(2, 20)),
    'projection_size': vision['hidden_size'],
    'eos_token_id': 1,
    'bos_token_id': None,
  }
  inputs = {'pixel_values': torch.rand(2, channels, size, size) * 2 - 1}
  if name == 'SiglipVisionModel':
    config = transformers.SiglipVisionConfig(**vision)
  else:
    config = transformers.SiglipConfig(
      text_config=text, vision_config=vision, num_labels=3
    )
  if name == 'SiglipModel':
    shape = (3, text['max_position_embeddings'])
    inputs['input_ids'] = torch.randint(0, text['vocab_size'], shape)
  return getattr(transformers, name)(config).eval(), inputs


def perturb(model):
  with torch.no_grad():
    for parameter in model.parameters():
      parameter.add_(0.1 * torch.randn_like(parameter))


def outputs(weights, inputs):
  images = inputs['pixel_values'].permute(0, 2, 3, 1).numpy()
  if 'input_ids' not in inputs:
    return jax.jit(
      lambda p, x: weights.module().apply({'params': p}, x, train=False)
    )(weights.params, images)
  zimg, ztxt, out = jax.jit(
    lambda p, x, ids: weights.module().apply(
      {'params': p}, images=x, tokens=ids
    )
  )(weights.params, images, inputs['input_ids'].numpy().astype(np.int32))
  return models.similarities(zimg, ztxt, out)


@pytest.mark.parametrize('name', OUTPUTS)
@SEEDS
def test_random_models_equal_transformers(tmp_path, name, seed):
  rng = np.random.default_rng(seed)
  torch.manual_seed(seed)
  model, inputs = random_model(rng, name)
  perturb(model)
  with torch.no_grad():
    want = model(**inputs)[OUTPUTS[name]].numpy()
  model.save_pretrained(tmp_path / 'x')
  weights = checkpoint.read(tmp_path / 'x')
  got = outputs(weights, inputs)
  np.testing.assert_allclose(got, want, atol=1e-5)
  print(f'{name} {seed}: {np.abs(got - want).max():.1e}')

  formats.convert(weights, str(tmp_path / 'y'), 'huggingface')
  again = type(model).from_pretrained(tmp_path / 'y').eval()
  with torch.no_grad():
    back = again(**inputs)[OUTPUTS[name]].numpy()
  np.testing.assert_array_equal(back, want)
  assert_same(
    dict(weights.params), dict(checkpoint.read(tmp_path / 'y').params)
  )
  if name == 'SiglipModel':
    formats.convert(weights, str(tmp_path / 'z.npz'), 'npz')
    params = checkpoint.read(tmp_path / 'z.npz').params
    assert_same(jax.tree.map(np.asarray, dict(weights.params)), dict(params))


@SEEDS
def test_random_image_towers_equal_timm(tmp_path, seed):
  rng = np.random.default_rng(seed)
  torch.manual_seed(seed)
  heads, patch = int(rng.integers(1, 5)), int(rng.integers(2, 9))
  model = timm.models.VisionTransformer(
    img_size=patch * int(rng.integers(1, 6)),
    patch_size=patch,
    embed_dim=int(heads * rng.integers(1, 4) * 4),
    depth=int(rng.integers(1, 4)),
    num_heads=heads,
    mlp_ratio=float(rng.choice([2.0, 3.7362, 4.0])),
    num_classes=int(rng.choice([0, 5])),
    class_token=False,
    global_pool='map',
    act_layer=str(rng.choice(['gelu', 'gelu_tanh'])),
  ).eval()
  perturb(model)
  size = model.patch_embed.img_size[0]
  inputs = {'pixel_values': torch.rand(2, 3, size, size) * 2 - 1}
  with torch.no_grad():
    want = model(inputs['pixel_values']).numpy()
  state = {k: x.numpy() for k, x in model.state_dict().items()}
  act = 'gelu_tanh' if 'tanh' in str(model.blocks[0].mlp.act).lower() else None
  arguments = {
    'img_size': size,
    'num_heads': heads,
    'global_pool': 'map',
    **({'act_layer': act} if act else {}),
  }
  array_files.write_safetensors(state, tmp_path / 'model.safetensors')
  formats.files.write_json(
    {
      'architecture': 'vit_base_patch16_siglip_224',
      'num_classes': model.num_classes,
      'model_args': arguments,
      'pretrained_cfg': {'input_size': [3, size, size]},
    },
    tmp_path / 'config.json',
  )
  weights = checkpoint.read(tmp_path)
  got = outputs(weights, inputs)
  np.testing.assert_allclose(got, want, atol=1e-5)
  print(f'timm {seed}: {np.abs(got - want).max():.1e}')
  formats.convert(weights, str(tmp_path / 'y'), 'timm')
  again = array_files.read_safetensors(tmp_path / 'y')
  assert again.keys() == state.keys()
  assert all(np.array_equal(x, again[k]) for k, x in state.items())
