"""Random DINOv2 and DINOv3 of transformers, to transformers and to timm.

Runs only where PyTorch and these libraries are installed.
"""

import random

import live
import numpy as np
import pytest

from vit_jax import checkpoint
from vit_jax.runtime import errors
from vit_jax.weights import adaptation
from vit_jax.weights import formats

torch = pytest.importorskip('torch')
timm = pytest.importorskip('timm')
transformers = pytest.importorskip('transformers')


def common(rng, widths=(4, 8, 10)):
  heads = rng.randint(1, 4)
  return {
    'hidden_size': heads * rng.choice(widths),
    'num_attention_heads': heads,
    'num_hidden_layers': rng.randint(1, 3),
    'num_channels': rng.choice([1, 3]),
    'layerscale_value': rng.choice([1e-5, 0.5, 1.0]),
    'hidden_act': rng.choice(['gelu', 'gelu', 'gelu_pytorch_tanh']),
  }


def dinov2(rng):
  """Returns a model; its own code cannot do images that are not square."""
  config = common(rng) | {
    'image_size': rng.choice([16, 24]),
    'patch_size': rng.choice([4, 8]),
    'mlp_ratio': rng.choice([2, 4]),
    'qkv_bias': rng.random() < 0.7,
    'use_swiglu_ffn': rng.random() < 0.4,
  }
  head = {'num_labels': 3} if rng.random() < 0.4 else {}
  kind = 'ForImageClassification' if head else 'Model'
  if rng.random() < 0.5:
    return getattr(transformers, f'Dinov2{kind}')(
      transformers.Dinov2Config(**config, **head)
    )
  registers = rng.choice([0, 1, 4])
  return getattr(transformers, f'Dinov2WithRegisters{kind}')(
    transformers.Dinov2WithRegistersConfig(
      **config, **head, num_register_tokens=registers
    )
  )


def dinov3(rng):
  is_gated = rng.random() < 0.5
  config = common(rng, (4, 8, 12)) | {
    'image_size': rng.choice([16, 24, [16, 32], [24, 16]]),
    'patch_size': rng.choice([4, 8]),
    'intermediate_size': rng.choice([20, 33]),
    'query_bias': True,
    'value_bias': True,
    'use_gated_mlp': is_gated,
    'num_register_tokens': rng.choice([0, 1, 4]),
    'rope_theta': rng.choice([100.0, 30.0]),
  }
  if is_gated:
    config['hidden_act'] = 'silu'
  biases = rng.choice(['qv', 'qv', '', 'qkv', 'v'])
  for letter, name in zip('qkv', ('query', 'key', 'value'), strict=True):
    config[f'{name}_bias'] = letter in biases
  return transformers.DINOv3ViTModel(transformers.DINOv3ViTConfig(**config))


def outputs(model, images):
  with torch.no_grad():
    y = model(pixel_values=live.as_torch(images))
  return (y.logits if hasattr(y, 'logits') else y.pooler_output).numpy()


def loaded(cls, path):
  """Returns a model of transformers whose arrays are all in the file."""
  model, info = cls.from_pretrained(path, output_loading_info=True)
  assert not any(info.values()), info
  return model.eval()


@pytest.mark.parametrize('seed', range(20))
@pytest.mark.parametrize('make', [dinov2, dinov3])
def test_random_models_equal_transformers_and_timm(tmp_path, make, seed):
  model = live.perturbed(make(random.Random(seed)), seed)
  model.save_pretrained(tmp_path / 'x')
  weights = checkpoint.read(tmp_path / 'x')
  images = live.random_images(
    seed, weights.image_shape[:2], weights.image_shape[2]
  )
  want, got = outputs(model, images), live.output(weights, images)
  print('difference', make.__name__, seed, np.abs(got - want).max())
  np.testing.assert_allclose(got, want, atol=1e-5, rtol=1e-5)

  larger = tuple(n + 8 for n in images.shape[1:3])
  larger_images = live.random_images(seed, larger, images.shape[3])
  np.testing.assert_allclose(
    live.output(adaptation.at_size(weights, larger), larger_images),
    outputs(model, larger_images),
    atol=1e-5,
    rtol=1e-5,
  )

  formats.convert(weights, str(tmp_path / 'y'), 'huggingface')
  again = loaded(type(model), tmp_path / 'y')
  np.testing.assert_array_equal(outputs(again, images), want)
  ours, theirs = again.state_dict(), model.state_dict()
  for name, x in theirs.items():
    if not name.endswith('mask_token'):
      assert torch.equal(ours[name], x), name
  assert checkpoint.read(tmp_path / 'y').model == {
    **weights.model,
    'model_name': 'x',
  }

  try:
    formats.convert(weights, str(tmp_path / 'z'), 'timm')
  except errors.UserError as e:
    print('refused by timm:', e)
    return
  other = timm.create_model(f'local-dir:{tmp_path}/z', pretrained=True).eval()
  with torch.no_grad():
    theirs = other(live.as_torch(images)).numpy()
  print('difference', make.__name__, 'timm', np.abs(theirs - want).max())
  np.testing.assert_allclose(theirs, want, atol=1e-5, rtol=1e-5)
  back = checkpoint.read(tmp_path / 'z')
  formats.convert(back, str(tmp_path / 'a'), 'huggingface')
  again = outputs(loaded(type(model), tmp_path / 'a'), images)
  np.testing.assert_array_equal(again, want)
