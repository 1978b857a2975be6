"""Fine-tuning of a pretrained SigLIP, both towers or the text tower alone."""

import shutil

from golden_files import GOLDEN
import jax
import jax.numpy as jnp
from made import assert_same
import numpy as np
import pytest
from runs import flat
from runs import run_file

from vit_jax import checkpoint
from vit_jax import models
from vit_jax import train
from vit_jax import zero_shot
from vit_jax.configs import unused
from vit_jax.data import decoding
from vit_jax.data import inputs
from vit_jax.data.augmentation import augment
from vit_jax.data.augmentation import transforms
from vit_jax.data.texts import text


@pytest.fixture(scope='module')
def pair(tmp_path_factory):
  """A pretrained SigLIP of transformers, with its tokeniser."""
  folder = tmp_path_factory.mktemp('siglip') / 'pair'
  shutil.copytree(GOLDEN / 'siglip', folder)
  shutil.copy(GOLDEN / 'siglip_tokens' / 'spiece.model', folder)
  return folder


def settings(pair, captions, **changes):
  run = run_file('configs/siglip_folder.py')
  config = run.get_config(f'{pair},{captions}')
  config.update(
    {
      'batch': 12,
      'batch_eval': 8,
      'total_steps': 4,
      'warmup_steps': 1,
      'base_lr': 1e-3,
      'eval_every': 0,
      'checkpoint_every': 2,
      'report': False,
      'remat': 'full',
      'scan_layers': True,
      **changes,
    }
  )
  return config


@pytest.fixture(scope='module')
def workdir(pair, captions, tmp_path_factory):
  """A finished run of both towers."""
  folder = tmp_path_factory.mktemp('siglip_run') / 'run'
  train.train_and_evaluate(settings(pair, captions), str(folder))
  return folder


@pytest.mark.slow
def test_both_towers_learn_from_where_the_weights_are(pair, workdir):
  before, after = checkpoint.read(pair), checkpoint.read(workdir / 'artifact')
  assert after.loss == 'sigmoid'
  assert 'temperature_max' not in after.model  # Only CLIP has one.
  for tower in ('img', 'txt'):
    moved = jax.tree.map(
      lambda x, y: np.abs(x - y).max(),
      before.params[tower],
      dict(after.params[tower]),
    )
    assert 0 < max(jax.tree.leaves(moved)) < 0.02
  for name in ('t', 'b'):
    assert before.params[name] != after.params[name]
    assert abs(before.params[name] - after.params[name]) < 0.02


@pytest.mark.slow
def test_resumed_run_is_equal(pair, captions, workdir, tmp_path):
  shutil.copytree(workdir, tmp_path / 'run')
  shutil.rmtree(tmp_path / 'run' / 'artifact')
  shutil.rmtree(tmp_path / 'run' / 'checkpoints' / '4')
  train.train_and_evaluate(settings(pair, captions), str(tmp_path / 'run'))
  assert_same(flat(workdir), flat(tmp_path / 'run'))


@pytest.mark.slow
def test_zero_shot_of_the_artifact_gives_the_probabilities_of_the_model(
  workdir, captions
):
  weights = zero_shot.load(str(workdir / 'artifact'))
  image, labels = str(captions / 'test' / 'red0.png'), ['red', 'a', 'e']
  [(_, got)] = zero_shot.classify(weights, [image], labels, templates=['{}'])
  pixels = decoding.decode(inputs.read(image), channels=3, exif=False)
  pixels = transforms.lit_image(pixels, weights.preprocessing.size)[None]
  tokens = text.get_tokenizer('siglip', weights.vocabulary, 8)(labels)
  zimg, ztxt, out = weights.module().apply(
    {'params': weights.params},
    images=augment.normalize(jnp.asarray(pixels), (0.5,), (0.5,)),
    tokens=tokens,
  )
  want = jax.nn.sigmoid(models.similarities(zimg, ztxt, out))[0]
  assert len({round(float(p), 6) for p in want}) == 3
  for label, probability in got:
    assert probability == pytest.approx(
      float(want[labels.index(label)]), abs=1e-6
    )


@pytest.mark.slow
def test_artifact_is_a_siglip_of_transformers(workdir):
  names = {path.name for path in (workdir / 'artifact').iterdir()}
  assert {'model.safetensors', 'spiece.model', 'tokenizer_config.json'} <= names
  config = checkpoint.formats.files.read_json(
    workdir / 'artifact' / 'config.json'
  )
  assert config['architectures'] == ['SiglipModel']


@pytest.mark.slow
def test_locked_image_tower_stays(pair, captions, tmp_path):
  config = settings(pair, captions, lock_image_tower=True, total_steps=1)
  config.warmup_steps = 0
  train.train_and_evaluate(config, str(tmp_path / 'run'))
  before, after = checkpoint.read(pair), checkpoint.read(tmp_path / 'run')
  assert_same(
    jax.tree.map(np.asarray, before.params['img']),
    jax.tree.map(np.asarray, dict(after.params['img'])),
  )
  head = ('txt', 'head', 'kernel')
  old, new = before.params, after.params
  for name in head:
    old, new = old[name], new[name]
  assert np.abs(old - new).max() > 0


def test_settings_of_locked_towers_without_effect_are_refused(pair, captions):
  config = settings(pair, captions, lock_image_tower=True)
  assert not unused.find(config, 'lock_image_tower')
  name = 'model.image.transformer.dropout_rate'
  assert 'keeps the image tower' in unused.find(config, name)
  config.lock_image_tower = False
  assert not unused.find(config, name)
