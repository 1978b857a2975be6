"""A CLIP in use: zero-shot classes, features of images, every format."""

import dataclasses
import json

import clips
import cv2
from made import assert_same
import numpy as np
from pictures import picture
import PIL.Image
from processes import call_command
import pytest

import vit_jax
from vit_jax import checkpoint
from vit_jax import zero_shot
from vit_jax.data.texts import text
from vit_jax.runtime import errors
from vit_jax.weights import artifact
from vit_jax.weights import families
from vit_jax.weights import formats
from vit_jax.weights.families import clip

LABELS = ('cat', 'a red dog', 'sky')


@pytest.fixture(scope='module')
def folders(tmp_path_factory):
  """The same CLIP as an artifact and as a folder of transformers; a picture."""
  root = tmp_path_factory.mktemp('clip')
  weights = clips.pair()
  artifact.save(root / 'artifact', weights)
  formats.convert(weights, str(root / 'huggingface'), 'huggingface')
  image = picture(0, 30, 41)
  cv2.imwrite(str(root / 'x.png'), image[:, :, ::-1])
  return root, weights, image


def prepared(image):
  """Returns an image as CLIP's own code prepares it."""
  resized = PIL.Image.fromarray(image).resize(
    (21, 16), PIL.Image.Resampling.BICUBIC
  )
  pixels = np.asarray(resized)[:, 2:18] / np.float32(255)
  return ((pixels - clip.MEAN) / clip.STD)[None].astype(np.float32)


@pytest.mark.slow
def test_every_format_gives_the_probabilities_of_clip(folders):
  root, weights, image = folders
  tokenizer = text.get_tokenizer('clip', clips.VOCABULARY, 8)
  tokens = tokenizer([f'a photo of {label}' for label in LABELS])
  zimg, ztxt, out = weights.module().apply(
    {'params': weights.params}, images=prepared(image), tokens=tokens
  )
  logits = np.asarray(out['t']) * np.asarray(zimg) @ np.asarray(ztxt).T
  want = np.exp(logits[0]) / np.exp(logits[0]).sum()
  for name in ('artifact', 'huggingface', 'artifact/model.npz'):
    again = zero_shot.load(str(root / name))
    assert_same(again.params, weights.params)
    assert again.preprocessing == weights.preprocessing
    [(_, row)] = zero_shot.classify(
      again,
      [str(root / 'x.png')],
      LABELS,
      templates=['a photo of {}'],
    )
    got = [dict(row)[label] for label in LABELS]
    np.testing.assert_allclose(got, want, atol=1e-5)
  assert (root / 'artifact' / 'tokenizer.json').is_file()
  names = {path.name for path in (root / 'huggingface').iterdir()}
  assert {'tokenizer.json', 'tokenizer_config.json'} < names


def test_vocabularies_can_be_given_and_must_be_known(folders, tmp_path):
  _, weights, _ = folders
  bare = dataclasses.replace(weights, vocabulary=None)
  formats.convert(bare, str(tmp_path / 'x'), 'huggingface')
  with pytest.raises(errors.UserError, match='its vocabulary is not known'):
    zero_shot.load(str(tmp_path / 'x'))
  given = zero_shot.load(str(tmp_path / 'x'), vocabulary=clips.VOCABULARY)
  assert given.vocabulary == clips.VOCABULARY
  with pytest.raises(
    errors.UserError, match='no text tower .* Use vit-jax pre'
  ):
    zero_shot.load('ViT-Mini_8')


def test_the_command_takes_a_folder_of_transformers(folders):
  root, _, _ = folders
  result = call_command(
    'zero_shot',
    f'--model={root}/huggingface',
    '--labels=cat,dog',
    '--json',
    str(root / 'x.png'),
  )
  assert result.returncode == 0, result.stderr
  [line] = map(json.loads, result.stdout.splitlines())
  assert {x['class'] for x in line['predictions']} == {'cat', 'dog'}


def test_a_pair_gives_features_and_attention_but_no_classes(folders):
  root, weights, image = folders
  model = vit_jax.load(root / 'artifact')
  zimg, _, _ = weights.module().apply(
    {'params': weights.params}, images=prepared(image)
  )
  features = model.features(image)
  features /= np.linalg.norm(features)
  np.testing.assert_allclose(features, zimg, atol=1e-5)
  assert model.attention(image).shape == (1, 1, 3, 5, 5)
  with pytest.raises(errors.UserError, match='vit-jax zero_shot --labels'):
    model.predict(image)


def test_evaluate_refuses_a_pair_before_it_reads_the_data_set(folders):
  root, *_ = folders
  model, captions = f'--model={root / "artifact"}', f'--dataset={root}'
  result = call_command('evaluate', model, captions)
  assert result.returncode == 1
  assert 'use vit-jax zero_shot' in result.stderr


def test_timm_takes_the_image_tower(folders, tmp_path, caplog):
  _, weights, _ = folders
  formats.convert(weights, str(tmp_path / 'x'), 'timm')
  assert 'only the image tower is written' in caplog.text
  again, tower = checkpoint.read(tmp_path / 'x'), weights.image_tower()
  assert_same(again.params, tower.params)
  assert not families.lost(tower.model, again.model)
