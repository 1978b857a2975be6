"""Attention maps against their definitions, and the pictures made of them."""

import dataclasses
import pathlib

import cv2
from golden_files import GOLDEN
import numpy as np
from pictures import picture
from processes import call_command
import pytest

import vit_jax
from vit_jax import predictor as predictor_lib
from vit_jax.evaluation import attention_maps
from vit_jax.reporting import attention_pictures
from vit_jax.runtime import errors

GRID, PREFIX = (3, 4), 1
LENGTH = PREFIX + GRID[0] * GRID[1]


@pytest.fixture
def weights():
  rng = np.random.default_rng(0)
  weights = rng.random((2, 3, LENGTH, LENGTH)).astype(np.float32)
  return weights / weights.sum(axis=-1, keepdims=True)


def test_rollout_is_the_product_of_its_layers(weights):
  first, second = weights.mean(axis=1)
  eye = np.eye(LENGTH)
  want = (0.5 * second + 0.5 * eye) @ (0.5 * first + 0.5 * eye)
  got = attention_maps.rollout(weights)
  np.testing.assert_allclose(got, want, rtol=1e-5)
  np.testing.assert_allclose(got.sum(axis=-1), 1, rtol=1e-5)


def test_patch_map_takes_the_class_token_or_the_mean(weights):
  maps = attention_maps.patch_map(weights, GRID, True)
  assert maps.shape == (2, 3, *GRID)
  assert maps[1, 2, 1, 3] == weights[1, 2, 0, PREFIX + 1 * GRID[1] + 3]
  rows = weights[:, :, PREFIX:, PREFIX:]
  maps = attention_maps.patch_map(rows, GRID, False)
  np.testing.assert_allclose(maps[0, 1, 2, 0], rows[0, 1, :, 8].mean())
  # The token before them is a register.
  again = attention_maps.patch_map(weights, GRID, False)
  np.testing.assert_allclose(again, maps)


def test_distances_equal_values_by_hand(weights):
  pixels = (16, 8)
  got = attention_maps.mean_distances(weights, GRID, pixels)
  places = [(r * 16, c * 8) for r in range(GRID[0]) for c in range(GRID[1])]
  for layer in range(2):
    for head in range(3):
      means = []
      for i, (y, x) in enumerate(places, PREFIX):
        row = weights[layer, head, i, PREFIX:]
        far = [np.hypot(y - v, x - u) for v, u in places]
        means.append(np.average(far, weights=row))
      assert got[layer, head] == pytest.approx(np.mean(means), rel=1e-5)
  # A patch that attends only to itself looks 0 pixels far.
  itself = np.eye(LENGTH, dtype=np.float32)[None, None]
  assert attention_maps.mean_distances(itself, GRID, pixels) == 0


def test_position_similarities_are_cosines():
  posemb = np.random.default_rng(0).normal(size=(1, LENGTH, 5))
  got = attention_maps.position_similarities(posemb, GRID)
  a, b = posemb[0, PREFIX + 5], posemb[0, PREFIX + 10]
  want = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
  assert got[1, 1, 2, 2] == pytest.approx(want)
  np.testing.assert_allclose(np.einsum('ijij->ij', got), 1)


def test_first_filters_are_principal_components():
  rng = np.random.default_rng(0)
  one, other = rng.normal(size=(2, 2, 2, 3))
  shares = rng.normal(size=(2, 64))
  kernel = 9 * one[..., None] * shares[0] + 0.1 * other[..., None] * shares[1]
  first = attention_maps.first_filters(kernel, 2)[0]
  assert first.shape == (2, 2, 3)
  assert 0 <= first.min() < first.max() <= 1
  direction = (first - 0.5).ravel() / np.linalg.norm(first - 0.5)
  along = abs(direction @ one.ravel())
  assert along == pytest.approx(np.linalg.norm(one), rel=1e-2)


def test_image_is_bright_where_attention_is_large():
  values = np.zeros((4, 6), np.float32)
  values[1, 2] = 1.0
  pixels = attention_pictures.on_image(
    np.full((64, 96, 3), 0.5, np.float32), values
  )
  bright = pixels.mean(axis=-1)
  assert np.unravel_index(bright.argmax(), bright.shape) == pytest.approx(
    (24, 40), abs=2
  )
  assert bright[24, 40] > 1.5 * bright[56, 88]


def assert_pictures(paths, folder, count):
  names = {p.name for p in paths}
  assert names == {p.name for p in folder.iterdir()}
  assert len(names) == count
  for path in paths:
    pixels = cv2.imread(str(path))
    assert min(pixels.shape[:2]) > 100
    assert pixels.std() > 5, path


@pytest.mark.parametrize(
  'name',
  [
    'vit_nonsquare',
    pytest.param('vit_gap', marks=pytest.mark.slow),
    pytest.param('hybrid_r_stem', marks=pytest.mark.slow),
  ],
)
def test_every_vit_has_pictures(name, tmp_path):
  file = str(tmp_path / '0.png')
  cv2.imwrite(file, picture())
  size = (32, 48) if name == 'vit_nonsquare' else None
  predictor = vit_jax.load(GOLDEN / f'{name}.npz', size=size)
  paths = attention_pictures.draw(predictor, [file], tmp_path / 'new')
  assert_pictures(paths, tmp_path / 'new', 6)


def test_two_towers_have_pictures_of_that_of_images(tmp_path):
  file = str(tmp_path / '0.png')
  cv2.imwrite(file, picture())
  paths = attention_pictures.draw(
    vit_jax.load(GOLDEN / 'clip'), [file], tmp_path / 'new'
  )
  assert_pictures(paths, tmp_path / 'new', 6)


def test_fused_attention_gives_the_same_weights():
  plain = vit_jax.load(GOLDEN / 'vit_token.npz')
  model = dict(plain.weights.model)
  model['transformer'] = {**model['transformer'], 'attention': 'cudnn'}
  fused = predictor_lib.Predictor(
    dataclasses.replace(plain.weights, model=model)
  )
  np.testing.assert_array_equal(
    fused.attention(picture()), plain.attention(picture())
  )


def test_rollout_works_at_another_size():
  predictor = vit_jax.load(GOLDEN / 'vit_token.npz', size=(48, 64))
  [values] = predictor.rollout(picture())
  assert values.shape == predictor.grid
  [weights] = predictor.attention(picture())
  want = attention_maps.patch_map(
    attention_maps.rollout(weights), predictor.grid, True
  )
  np.testing.assert_allclose(values, want, rtol=1e-4)
  assert attention_pictures.on_image(
    attention_pictures.as_picture(np.zeros((48, 64, 1))), values
  ).shape == (384, 512, 3)


def test_file_names_are_safe_and_unique():
  stems = [
    attention_pictures._stem(n) for n in ('a/b.c.jpg', 'x/b c.png', '-', '..')
  ]
  assert stems == ['b.c', 'b_c', '-', 'image']
  assert attention_pictures._unique(['a', 'b', 'a']) == ['a', 'b', 'a_2']
  assert attention_pictures._unique(['a', 'a', 'a_2']) == ['a', 'a_2', 'a_2_2']


@pytest.mark.slow
def test_command_draws_each_image_and_the_model(tmp_path):
  files = [str(tmp_path / name) for name in ('x.png', 'y.png')]
  for i, file in enumerate(files):
    cv2.imwrite(file, picture(i))
  model = f'--model={GOLDEN}/vit_token.npz'
  out = tmp_path / 'new' / 'out'
  result = call_command('attention', model, *files, f'--output={out}')
  assert result.returncode == 0, result.stderr
  paths = [*map(pathlib.Path, result.stdout.splitlines())]
  assert out / 'x_rollout.png' in paths
  assert_pictures(paths, out, 9)


def test_folder_that_cannot_be_written_and_model_without_attention(tmp_path):
  files = [str(tmp_path / 'x.png')]
  cv2.imwrite(files[0], picture())
  mixer = vit_jax.load(GOLDEN / 'mixer.npz')
  for folder, message in (
    (tmp_path / 'x.png' / 'y', 'cannot be written'),
    (tmp_path / 'y', 'has no attention'),
  ):
    with pytest.raises(errors.UserError, match=message):
      attention_pictures.draw(mixer, files, folder)
