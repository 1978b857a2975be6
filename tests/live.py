"""Compares models of PyTorch libraries with ours, where these are installed."""

import functools

import jax
import numpy as np

from vit_jax.weights import array_files


def perturbed(model, seed):
  """Returns a model of PyTorch whose parameters are all different from zero."""
  import torch

  generator = torch.Generator().manual_seed(seed)
  with torch.no_grad():
    for p in model.parameters():
      p.add_(torch.randn(p.shape, generator=generator) * 0.1)
  return model.eval()


def random_images(seed, size, channels=3):
  """Returns two images [2, H, W, C] in [-1, 1]."""
  rng = np.random.default_rng(seed)
  return rng.uniform(-1, 1, (2, *size, channels)).astype(np.float32)


def as_torch(images):
  """Returns images as PyTorch's models take them."""
  import torch

  return torch.tensor(np.asarray(images).transpose(0, 3, 1, 2))


def output(weights, images):
  """Returns what our model computes."""
  apply = jax.jit(functools.partial(weights.module().apply, train=False))
  return np.asarray(apply({'params': weights.params}, images))


def assert_same_arrays(one, other, pack=None):
  """Checks that two files or folders have equal arrays, after `pack` if given."""
  one, other = map(array_files.read_safetensors, (one, other))
  if pack:
    one, other = pack(one), pack(other)
  assert one.keys() == other.keys()
  for name, x in one.items():
    np.testing.assert_array_equal(x, other[name], err_msg=name)
