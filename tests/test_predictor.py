"""A trained model predicts the classes of images of any kind."""

import dataclasses
import io
import json
import sys

import cv2
from golden_files import GOLDEN
import jax
import jax.numpy as jnp
import numpy as np
from pictures import picture
import PIL.Image
from processes import run
import pytest

import vit_jax
from vit_jax import checkpoint
from vit_jax import predictor
from vit_jax.commands import output
from vit_jax.data import inputs
from vit_jax.data.augmentation import augment
from vit_jax.data.augmentation import transforms
from vit_jax.evaluation import probes
from vit_jax.evaluation import ranking
from vit_jax.evaluation import scores
from vit_jax.runtime import errors

TOKEN = GOLDEN / 'vit_token.npz'


@pytest.fixture(scope='module')
def token():
  return vit_jax.load(TOKEN, batch_size=2)


def prepared(image, size=(32, 32)):
  image = transforms.eval_image(image, size)
  return augment.normalize(transforms.stack([image]))


def test_logits_are_those_of_the_module_and_repr_says_what_it_is(token):
  image = picture()
  weights = token.weights
  want = weights.module().apply(
    {'params': weights.params}, prepared(image), train=False
  )
  got = token.logits(image)
  assert got.shape == (1, 10)
  np.testing.assert_allclose(got, want, atol=1e-5)
  np.testing.assert_allclose(
    jax.nn.softmax(got[0]), next(token.probabilities(image))[1], atol=1e-6
  )
  assert repr(token) == (
    'Predictor(vit_token: 32,778 parameters, 10 classes, 32x32 pixels)'
  )


def test_a_bfloat16_model_computes_in_bfloat16(token):
  image = picture()
  weights = token.weights
  half = vit_jax.load(TOKEN, dtype='bfloat16')
  module = weights.module().clone(dtype=jnp.bfloat16)
  want = module.apply({'params': weights.params}, prepared(image), train=False)
  got = half.logits(image)
  assert got.dtype == np.float32
  np.testing.assert_allclose(got, np.asarray(want, np.float32), atol=1e-3)
  assert np.abs(got - token.logits(image)).max() > 2e-3
  # Weights remember the precision of their run.
  model = {**weights.model, 'dtype': 'bfloat16'}
  weights = dataclasses.replace(weights, model=model)
  np.testing.assert_array_equal(predictor.Predictor(weights).logits(image), got)
  whole = predictor.Predictor(weights, dtype='float32')
  np.testing.assert_array_equal(whole.logits(image), token.logits(image))


def test_all_kinds_of_images_agree(token, tmp_path, monkeypatch):
  image = picture()
  name = str(tmp_path / 'x.png')
  cv2.imwrite(name, image[..., ::-1])
  bgra = np.dstack([image[..., ::-1], np.full(image.shape[:2], 7, np.uint8)])
  cv2.imwrite(str(tmp_path / 'y.png'), bgra)

  class Standard:
    buffer = io.BytesIO((tmp_path / 'x.png').read_bytes())

  monkeypatch.setattr(sys, 'stdin', Standard)
  inputs._read_stdin.cache_clear()
  images = [
    name,
    tmp_path / 'y.png',
    image,
    bgra[..., [2, 1, 0, 3]],
    PIL.Image.fromarray(image),
    '-',
    '-',  # Standard input is read once.
  ]

  def rows(images):
    return np.stack([row for _, row in token.probabilities(images)])

  [want] = rows(image)
  np.testing.assert_allclose(rows(images), [want] * len(images), rtol=1e-5)
  grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
  same = rows([grey, grey[..., None], np.dstack([grey] * 3)])
  np.testing.assert_allclose(same, same[:1].repeat(3, axis=0), rtol=1e-5)
  assert np.abs(same[0] - want).max() > 1e-3


def test_probabilities_are_those_of_the_model(token):
  images = [picture(seed) for seed in range(5)]  # Not a multiple of the batch.
  rows = dict(token.probabilities(images))
  assert list(rows) == list(range(5))
  weights = checkpoint.read(TOKEN)
  for image, row in zip(images, rows.values(), strict=True):
    logits = weights.module().apply(
      {'params': weights.params}, prepared(image), train=False
    )
    np.testing.assert_allclose(row, jax.nn.softmax(logits)[0], atol=1e-6)
  [best] = token.predict(images[0], top_k=1)
  assert best[0][0] == token.labels[np.argmax(rows[0])]


@pytest.mark.parametrize(
  'image',
  [np.zeros((4, 4, 3)), np.zeros((2, 3, 4, 4, 3), np.uint8)[0], np.uint8(1)],
)
def test_arrays_of_wrong_type_are_refused(token, image):
  if np.ndim(image) == 4:  # Several images.
    assert len(token.predict(image)) == len(image)
    return
  with pytest.raises(errors.UserError, match='image 0 is .* must be uint8'):
    token.predict(image)


def test_wrong_channels_are_refused(token):
  with pytest.raises(errors.UserError, match='has 2 channels, .* takes .* 3'):
    token.predict(np.zeros((8, 8, 2), np.uint8))


def test_load_at_another_size_resizes_position_embeddings(token):
  wide = vit_jax.load(TOKEN, size=(32, 64))
  assert wide.grid == (token.grid[0], 2 * token.grid[1])
  assert vit_jax.load(TOKEN, size=64).grid == wide.grid[1:] * 2
  row = next(wide.probabilities(picture()))[1]
  assert row.sum() == pytest.approx(1, abs=1e-5)
  mixer = GOLDEN / 'mixer.npz'
  with pytest.raises(errors.UserError, match='of a Mixer cannot be resized'):
    vit_jax.load(mixer, size=(64, 64))
  same = checkpoint.at_size(token.weights, (32, 32))
  jax.tree.map(np.testing.assert_array_equal, same.params, token.weights.params)


@pytest.mark.slow
def test_predict_uses_all_devices_of_the_host(token, tmp_path):
  names = [str(tmp_path / f'{i}.png') for i in range(4)]
  for i, name in enumerate(names):
    cv2.imwrite(name, picture(i)[..., ::-1])
  args = (f'--model={TOKEN}', '--json', '--batch=2', *names)
  result = run('vit_jax', 'predict', *args, devices=3)
  assert result.returncode == 0, result.stderr
  lines = [json.loads(line) for line in result.stdout.splitlines()]
  assert [line['image'] for line in lines] == names
  for line, want in zip(lines, token.predict(names), strict=True):
    for got, (label, probability) in zip(
      line['predictions'], want, strict=True
    ):
      assert got['class'] == label
      assert got['probability'] == pytest.approx(probability, rel=1e-4)


def test_bad_images_are_named_or_skipped(token, tmp_path):
  good, bad = str(tmp_path / 'good.png'), str(tmp_path / 'bad.jpg')
  cv2.imwrite(good, picture())
  (tmp_path / 'bad.jpg').write_bytes(b'\xff\xd8 no more')
  with pytest.raises(errors.UserError, match='bad.jpg cannot be decoded'):
    token.predict([good, bad])
  kept = vit_jax.load(TOKEN, on_bad_image='skip')
  assert [i for i, _ in kept.probabilities([bad, good, bad, good])] == [1, 3]
  assert kept.skipped.keys() == {bad}
  # Without images, outputs are empty and keep their shape.
  for name in ('attention', 'rollout', 'features'):
    function = getattr(kept, name)
    for images in ([bad], []):
      assert function(images).shape == (0, *function([good]).shape[1:])
  assert kept.predict([bad]) == []
  with pytest.raises(errors.UserError, match='^None of 1 images can be deco'):
    list(ranking.at_least_one(kept.probabilities([bad]), 1))
  source = inputs.InputSource([bad], 3)
  source.class_names, source.labels = ['class 0'], lambda: np.zeros(1, int)
  source.names = lambda: [bad]
  for call in (
    lambda: scores.predict(kept.probabilities(source), kept.labels, source),
    lambda: probes.of_rows(kept.iter_features, ['knn'], source, source),
  ):
    with pytest.raises(errors.UserError, match='^None of the images can be de'):
      call()


def test_wrong_arguments_are_refused():
  for changes, message in (
    ({'on_bad_image': 'error'}, "'error', but must be 'raise' or 'skip'"),
    ({'batch_size': 0}, 'batch_size is 0, but must be at least 1'),
    ({'dtype': 'float16'}, "dtype is 'float16', must be one of"),
  ):
    with pytest.raises(errors.UserError, match=message):
      vit_jax.load(TOKEN, **changes).predict([picture()])
  with pytest.raises(
    errors.UserError, match="no field 'lable'. Did you mean 'lab"
  ):
    vit_jax.load(TOKEN).evaluate('digits', columns={'lable': 'x'})
  with pytest.raises(errors.UserError, match='top_k is 0, must be at least 1'):
    vit_jax.load(TOKEN).predict([picture()], top_k=0)


def test_missing_images_are_named(tmp_path):
  (tmp_path / 'empty').mkdir()
  for argument, message in (
    (str(tmp_path / 'x.jpg'), 'x.jpg cannot be read: there is no such file'),
    (str(tmp_path / '*.jpg'), r'\*.jpg cannot be read: there is no such file'),
    (str(tmp_path / 'empty'), r'empty has no images \(.jpg'),
  ):
    with pytest.raises(errors.UserError, match=message):
      inputs.find([argument])
  with pytest.raises(errors.UserError, match='Name at least one image'):
    inputs.find([])


def test_folders_patterns_and_names_with_brackets(tmp_path):
  for name in ('b/2.jpg', 'b/1.PNG', 'a[1].jpg', 'b/c/3.webp', 'b/note.txt'):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(b'')

  def names(*arguments):
    found = inputs.find([str(tmp_path / x) for x in arguments])
    return [x.removeprefix(f'{tmp_path}/') for x in found]

  assert names('b') == ['b/1.PNG', 'b/2.jpg', 'b/c/3.webp']
  assert names('a[1].jpg', 'b/*.jpg') == ['a[1].jpg', 'b/2.jpg']
  assert names('**/*.webp') == ['b/c/3.webp']
  assert inputs.find(['-', 'https://x/y.jpg']) == ['-', 'https://x/y.jpg']


def test_predictions_print_as_table_csv_or_json(capsys):
  predictions = [
    ('a.jpg', [('cat, "big"', 0.75), ('dog', 0.25)]),
    ('long/b.jpg', [('dog', 1.0)]),
  ]
  names = [name for name, _ in predictions]
  output.show(predictions, names, as_json=False, as_csv=False)
  assert capsys.readouterr().out.splitlines() == [
    'a.jpg        75.00%  cat, "big"',
    '             25.00%  dog',
    'long/b.jpg  100.00%  dog',
  ]
  output.show(predictions, names, as_json=False, as_csv=True)
  assert capsys.readouterr().out.splitlines() == [
    'image,rank,class,probability',
    'a.jpg,1,"cat, ""big""",0.75',
    'a.jpg,2,dog,0.25',
    'long/b.jpg,1,dog,1.0',
  ]
  output.show(predictions, names, as_json=True, as_csv=False)
  lines = capsys.readouterr().out.splitlines()
  assert json.loads(lines[0])['predictions'][0]['class'] == 'cat, "big"'
  with pytest.raises(errors.UserError, match='one of --json and --csv'):
    output.show(predictions, names, as_json=True, as_csv=True)
