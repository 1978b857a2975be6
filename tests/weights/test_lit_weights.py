"""First parameters of LiT training, and what it refuses."""

import dataclasses

import jax
from made import assert_same
import numpy as np
import pytest
from runs import tiny_lit

from vit_jax import checkpoint
from vit_jax import models
from vit_jax import train
from vit_jax.configs import arguments
from vit_jax.configs import models as model_configs
from vit_jax.configs import resolved
from vit_jax.configs import spec
from vit_jax.configs import validate
from vit_jax.data import preprocessing
from vit_jax.models import flops
from vit_jax.runtime import errors
from vit_jax.weights import formats
from vit_jax.weights import initial as initial_lib
from vit_jax.weights import released


def initial(config, path, seed=0, **known):
  model = models.from_config(arguments.of_model(config))
  size = resolved.image_size(config)
  shapes = models.abstract_params(model, (*size, 3))
  grid = spec.of(config.model).grid(size)
  weights = dataclasses.replace(checkpoint.read(path), **known)
  return initial_lib.lit_params(model, weights, shapes, grid=grid, seed=seed)


def test_lit_params_take_both_towers(captions, lit_run, tmp_path):
  state, workdir = lit_run
  path = workdir / 'artifact' / 'model.npz'
  config = tiny_lit(captions)
  got = initial(config, path)
  assert_same(got, jax.tree.map(np.asarray, state.params))
  config.loss = 'sigmoid'
  with config.ignore_type():
    config.pp.crop = (16, 32)
  got = initial(config, path)
  assert got['b'] == -10
  posemb = got['img']['Transformer']['posembed_input']
  assert posemb['pos_embedding'].shape == (1, 8, 16)
  np.testing.assert_array_equal(got['t'], state.params['t'])
  # The softmax loss has no bias, whatever the weights were trained with.
  checkpoint.save(got, tmp_path / 'sigmoid.npz')
  config.loss = 'softmax'
  again = initial(
    config,
    tmp_path / 'sigmoid.npz',
    model=config.model.to_dict(),
    preprocessing=preprocessing.Preprocessing((16, 32)),
  )
  assert 'b' not in again
  assert_same(again['img'], got['img'])


def test_lit_params_fill_missing_parameters_at_random(captions):
  config = tiny_lit(captions)
  one, two, again = (
    initial(config, captions / 'vit.npz', seed=seed) for seed in (0, 1, 0)
  )
  assert_same(one, again)
  assert_same(one['img']['Transformer'], two['img']['Transformer'])
  kernel = lambda p, name: p[name]['head']['kernel']
  for name in ('img', 'txt'):
    assert np.abs(kernel(one, name) - kernel(two, name)).min() > 0
  assert one['t'] == pytest.approx(np.log(10))


def test_lit_params_refuse_weights_that_do_not_fit(captions, lit_run):
  config = tiny_lit(captions)
  config.model.text.width = 24
  with pytest.raises(
    errors.UserError, match='(?s)model.npz does not fit .*txt/'
  ):
    initial(config, lit_run[1] / 'artifact' / 'model.npz')
  config.model.image.hidden_size = 24
  with pytest.raises(
    errors.UserError, match='(?s)vit.npz does not fit tiny: 20 arrays'
  ):
    initial(config, captions / 'vit.npz')


def test_locked_tower_costs_one_forward_pass(captions):
  model = models.from_config(arguments.of_model(tiny_lit(captions)))
  forward = flops.forward_flops(model, (16, 16, 3))
  step = flops.train_flops(model, (16, 16, 3))
  assert forward < step < 3 * forward
  larger = flops.forward_flops(model, (32, 32, 3)) - forward
  assert flops.train_flops(model, (32, 32, 3)) - step == larger > 0


def test_find_vocabulary_of_released_model(tmp_path):
  config = model_configs.get_model_config('lit_l16ti')
  (tmp_path / 'LiT-L16Ti.model').write_bytes(b'')
  got = released.find_vocabulary(config, '', str(tmp_path))
  assert got == str(tmp_path / 'LiT-L16Ti.model')
  assert released.find_vocabulary(config, 'mine', str(tmp_path)) == 'mine'


@pytest.mark.parametrize(
  'name, value, message',
  [
    ('accum_steps', 2, 'config.accum_steps is 2, must be 1'),
    ('pretrained', '', "config.pretrained is '', must name the weights"),
    (
      'trainer',
      'train',
      "'train', the model tiny. LiT models need 'contrastive', other",
    ),
    ('model.out_dim', (None, 12), r'images have width 16, those of texts 12'),
    ('model.image.classifier', 'unpooled', 'config.model.image.classifier is'),
    ('model.pp.max_len', 1, 'config.model.pp.max_len is 1, must be at least 2'),
    (
      'stochastic_depth_rate',
      0.1,
      'config.stochastic_depth_rate is 0.1, but has no effect',
    ),
    ('pp.cutmix', 1.0, 'config.pp mixes images .* mixed images have no texts'),
    ('pp.mixup', 0.2, 'config.pp mixes images'),
    ('temperature_init', 0.0, 'config.temperature_init is 0.0, must be from'),
  ],
)
def test_validate_refuses_settings_that_cannot_work(
  captions, name, value, message
):
  config = tiny_lit(captions)
  *parents, last = name.split('.')
  node = config
  for parent in parents:
    node = node[parent]
  with config.unlocked(), config.ignore_type():
    node[last] = value
  with pytest.raises(errors.UserError, match=message):
    validate.validate(config)


@pytest.mark.parametrize(
  'name, value, message',
  [
    ('vocabulary', '', 'tiny is not a released model, so its vocab'),
    ('vocabulary', '/no/file', "'/no/file' cannot be read"),
    (
      'model.text.vocab_size',
      12,
      'token ids up to 13, .* embeddings for 12 ids',
    ),
    ('pretrained', '/no/file.npz', 'no checkpoint file or folder /no/file.npz'),
    ('dataset', '/no/folder', "no folder '/no/folder' here"),
  ],
)
def test_training_names_wrong_files(captions, tmp_path, name, value, message):
  config = tiny_lit(captions)
  *parents, last = name.split('.')
  node = config
  for parent in parents:
    node = node[parent]
  node[last] = value
  with pytest.raises(errors.UserError, match=message):
    train.train_and_evaluate(config, str(tmp_path))


def test_validate_refuses_vit_on_captions(captions):
  config = tiny_lit(captions)
  with config.unlocked(), config.ignore_type():
    config.model = model_configs.get_model_config('b16')
  with pytest.raises(errors.UserError, match='the model ViT-B_16. LiT models'):
    validate.validate(config)


def test_convert_refuses_lit(lit_run, tmp_path):
  weights = checkpoint.read(lit_run[1] / 'artifact')
  message = 'transformers has no .* Try .*to=npz'
  with pytest.raises(errors.UserError, match=message):
    formats.convert(weights, str(tmp_path / 'x'), 'huggingface')
  assert not list(tmp_path.iterdir())
