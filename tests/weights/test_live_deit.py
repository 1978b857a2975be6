"""ViT, DeiT and MAE equal an installed transformers, for random sizes."""

import numpy as np
import pytest

from vit_jax import checkpoint
from vit_jax.weights import array_files
from vit_jax.weights import formats

torch = pytest.importorskip('torch')
transformers = pytest.importorskip('transformers')

CLASSES = (
  'ViTForImageClassification',
  'ViTModel',
  'DeiTForImageClassification',
  'DeiTForImageClassificationWithTeacher',
  'DeiTModel',
  'ViTMAEModel',
)


def random_config(rng, name):
  heads, patch = rng.integers(1, 5), rng.integers(2, 9, 2)
  grid, channels = rng.integers(1, 6, 2), int(rng.choice([1, 3, 4]))
  config = {
    'hidden_size': int(heads * rng.integers(1, 4) * 4),
    'num_hidden_layers': int(rng.integers(1, 4)),
    'num_attention_heads': int(heads),
    'intermediate_size': int(rng.integers(8, 65)),
    'hidden_act': str(
      rng.choice(['gelu', 'gelu_new', 'gelu_pytorch_tanh', 'quick_gelu'])
    ),
    'layer_norm_eps': float(rng.choice([1e-12, 1e-6, 1e-3])),
    'qkv_bias': bool(rng.integers(2)),
    'num_channels': channels,
    'patch_size': patch.tolist(),
    'image_size': (patch * grid).tolist(),
    'num_labels': int(rng.integers(1, 7)),
  }
  if name == 'ViTMAEModel':  # transformers makes only square ones.
    patch, grid = int(patch[0]), int(grid[0])
    return config | {
      'patch_size': patch,
      'image_size': patch * grid,
      'mask_ratio': 0.0,
    }
  return config | {'pooler_output_size': int(rng.integers(1, 40))}


def outputs(model, images):
  result = model(images)
  for name in ('logits', 'pooler_output'):
    if name in result:
      return result[name]
  return result.last_hidden_state[:, 0]


@pytest.mark.parametrize('name', CLASSES)
@pytest.mark.parametrize('seed', range(20))
def test_random_models_equal_transformers(tmp_path, name, seed):
  rng = np.random.default_rng(seed)
  make = getattr(transformers, name)
  config = make.config_class(**random_config(rng, name))
  torch.manual_seed(seed)
  model = make(config).eval()
  channels, size = config.num_channels, config.image_size
  images = torch.rand(2, channels, *np.broadcast_to(size, 2)) * 2 - 1
  with torch.no_grad():
    for parameter in model.parameters():
      parameter.add_(0.1 * torch.randn_like(parameter))
    want = outputs(model, images)
  model.save_pretrained(tmp_path / 'x')

  weights = checkpoint.read(tmp_path / 'x')
  got = weights.module().apply(
    {'params': weights.params}, images.permute(0, 2, 3, 1).numpy(), train=False
  )
  np.testing.assert_allclose(got, want.numpy(), atol=1e-5)
  print(f'{name} {seed}: {np.abs(got - want.numpy()).max():.1e}')

  formats.convert(weights, str(tmp_path / 'y'), 'huggingface')
  before, after = (
    array_files.read_safetensors(tmp_path / folder) for folder in 'xy'
  )
  assert before.keys() == after.keys()
  assert all(np.array_equal(x, after[k]) for k, x in before.items())
  again = make.from_pretrained(tmp_path / 'y').eval()
  with torch.no_grad():
    got = outputs(again, images)
  torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
