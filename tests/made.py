"""Makes weights for tests, and changes golden ones."""

import functools
import shutil

from golden_files import GOLDEN
from golden_files import golden_json
import jax
import numpy as np
import safetensors.numpy

from vit_jax import models
from vit_jax.data import preprocessing
from vit_jax.weights import record as weights_lib

TOKEN = GOLDEN / 'vit_token.npz'
_INDEX = golden_json('index.json')
VIT = _INDEX['vit_token']['config']
HYBRID = _INDEX['hybrid_resnet_stages']['config']
STEM = _INDEX['hybrid_r_stem']['config']
MIXER = _INDEX['mixer']['config']


def random_weights(config, *, num_classes=5, size=64, shape=None, **changes):
  """Returns weights without zeros for a changed config."""
  shape = shape or (size, size, 3)
  model = models.from_config(config | changes, num_classes=num_classes or None)
  shapes = models.abstract_params(model, shape)
  rng = np.random.default_rng(0)
  params = jax.tree.map(
    lambda x: rng.normal(0, 0.1, x.shape).astype(np.float32), shapes
  )
  return weights_lib.Weights(
    params=params,
    model=config | changes,
    class_names=[f'name {i}' for i in range(num_classes)],
    preprocessing=preprocessing.Preprocessing(
      size=shape[:2], mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3)
    ),
  )


def applied(weights, *inputs, **towers):
  """Returns the outputs of a model, which is compiled as one program."""
  apply = jax.jit(functools.partial(weights.module().apply, train=False))
  return apply({'params': weights.params}, *inputs, **towers)


def assert_same(tree, other):
  """Checks that names and bits are equal."""
  assert jax.tree.structure(tree) == jax.tree.structure(other)
  leaves = jax.tree_util.tree_leaves_with_path(tree)
  for (path, x), y in zip(leaves, jax.tree.leaves(other), strict=True):
    np.testing.assert_array_equal(x, y, err_msg=jax.tree_util.keystr(path))


def copied(name, folder):
  """Copies a golden folder without its inputs and outputs."""
  shutil.copytree(GOLDEN / name, folder)
  (folder / 'io.npz').unlink()
  return folder


def changed(name, folder, change):
  """Copies a golden folder and changes its arrays by `change`."""
  folder = copied(name, folder)
  path = folder / 'model.safetensors'
  arrays = change(safetensors.numpy.load_file(path))
  safetensors.numpy.save_file(arrays, path)
  return folder
