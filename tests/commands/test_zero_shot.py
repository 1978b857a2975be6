"""Images are classified by labels in words."""

import dataclasses
import json
import re
import shutil

import cv2
from golden_files import GOLDEN
from golden_files import golden_json
import ml_collections
import numpy as np
from pictures import COLOURS
from pictures import write_colour
from processes import call_command
import pytest
import sentencepiece

import vit_jax
from vit_jax import checkpoint
from vit_jax import zero_shot as zero_shot_lib
from vit_jax.commands import zero_shot
from vit_jax.configs import models as model_configs
from vit_jax.data.augmentation import transforms
from vit_jax.data.texts import text
from vit_jax.runtime import download
from vit_jax.runtime import errors

TEMPLATES = ('a {} picture', 'this is {}')


@pytest.fixture(scope='module')
def unseen(tmp_path_factory):
  """Files of colours that no run has seen."""
  folder = tmp_path_factory.mktemp('unseen')
  rng = np.random.RandomState(7)
  files = {}
  for i in range(4):
    for name in COLOURS:
      path = folder / f'{name}{i}.png'
      write_colour(path, name, rng)
      files[str(path)] = name
  return files


@pytest.mark.slow
def test_unseen_colours_are_classified_by_name(lit_run, unseen):
  weights = zero_shot_lib.load(str(lit_run[1] / 'artifact'))
  assert weights.vocabulary == str(lit_run[1] / 'artifact' / 'vocabulary.txt')
  got = list(
    zero_shot_lib.classify(
      weights, list(unseen), COLOURS, templates=TEMPLATES, batch_size=5
    )
  )
  assert [name for name, _ in got] == list(unseen)
  assert [row[0][0] for _, row in got] == list(unseen.values())
  for _, row in got:
    assert sum(p for _, p in row) == pytest.approx(1, abs=1e-5)
    assert row == sorted(row, key=lambda pair: -pair[1])


@pytest.mark.slow
def test_probabilities_are_those_of_the_averaged_templates(lit_run, unseen):
  weights = zero_shot_lib.load(str(lit_run[1] / 'artifact'))
  path = next(iter(unseen))
  [(_, row)] = zero_shot_lib.classify(
    weights, [path], COLOURS, templates=TEMPLATES
  )
  model = weights.module()
  tokenizer = text.get_tokenizer('bert', weights.vocabulary, 6)
  prompts = [t.format(name) for name in COLOURS for t in TEMPLATES]
  image = cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2RGB)
  pixels = transforms.lit_image(image, (16, 16))[None] / np.float32(127.5) - 1
  zimg, ztxt, out = model.apply(
    {'params': weights.params}, images=pixels, tokens=tokenizer(prompts)
  )
  z = np.asarray(ztxt).reshape(3, 2, -1).mean(1)
  z /= np.linalg.norm(z, axis=1, keepdims=True)
  logits = np.asarray(out['t']) * (np.asarray(zimg) @ z.T)[0]
  want = np.exp(logits) / np.exp(logits).sum()
  assert [p for _, p in row] == pytest.approx(sorted(want)[::-1], abs=1e-4)

  sigmoid = dataclasses.replace(weights, loss='sigmoid')
  [(_, row)] = zero_shot_lib.classify(
    sigmoid, [path], COLOURS, templates=TEMPLATES
  )
  want = 1 / (1 + np.exp(-logits))
  assert [p for _, p in row] == pytest.approx(sorted(want)[::-1], abs=1e-4)


@pytest.mark.slow
def test_command_prints_json_and_refuses_missing_models(
  lit_run, unseen, tmp_path
):
  (tmp_path / 'labels.txt').write_text('\n'.join(COLOURS) + '\n')
  files = list(unseen)[:3]
  result = call_command(
    'zero_shot',
    f'--model={lit_run[1]}/artifact',
    f'--labels={tmp_path}/labels.txt',
    *(f'--templates={template}' for template in TEMPLATES),
    '--top_k=2',
    '--json',
    *files,
  )
  assert result.returncode == 0, result.stderr
  lines = [json.loads(line) for line in result.stdout.splitlines()]
  assert [line['image'] for line in lines] == files
  for line in lines:
    best, second = line['predictions']
    assert best['class'] == unseen[line['image']]
    assert 1 > best['probability'] > second['probability'] > 0
  result = call_command(
    'zero_shot', '--model=/nowhere', '--labels=a,b', files[0]
  )
  assert result.returncode == 1
  assert 'Traceback' not in result.stderr
  line = result.stderr.strip().splitlines()[-1]
  assert re.match(
    'vit-jax zero_shot: There is no checkpoint file or folder /nowhere', line
  )


@pytest.fixture
def released(tmp_path, monkeypatch):
  """A folder with a small LiT-L16Ti, that of the golden file."""
  config = golden_json('index.json')['lit_text_transformer']['config']
  config = ml_collections.ConfigDict(config | {'model_name': 'LiT-L16Ti'})
  monkeypatch.setattr(model_configs, 'MODEL_CONFIGS', {'LiT-L16Ti': config})
  monkeypatch.setattr(model_configs, 'get_model_config', lambda name: config)
  shutil.copy(GOLDEN / 'lit_text_transformer.npz', tmp_path / 'LiT-L16Ti.npz')
  train_pieces(tmp_path / 'LiT-L16Ti', 60)
  return tmp_path


def train_pieces(prefix, vocab_size):
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(['a photo of the quick brown fox', 'jumps'] * 99),
    model_prefix=str(prefix),
    vocab_size=vocab_size,
    hard_vocab_limit=False,
    minloglevel=3,
  )


def test_released_models_are_found_by_either_name(released, unseen):
  path = next(iter(unseen))

  def classified(*args, **kwargs):
    weights = zero_shot_lib.load(*args, **kwargs)
    return list(zero_shot_lib.classify(weights, [path], ['fox', 'brown photo']))

  want = classified('lit_l16ti', pretrained_dir=str(released))
  assert want == classified('LiT-L16Ti', pretrained_dir=str(released))
  shutil.copy(released / 'LiT-L16Ti.npz', released / 'mine.npz')
  assert want == classified(
    str(released / 'mine.npz'),
    config_name='lit_l16ti',
    vocabulary=str(released / 'LiT-L16Ti.model'),
  )
  with pytest.raises(errors.UserError, match=' config_name=lit_b16b'):
    zero_shot_lib.load(str(released / 'mine.npz'))


def test_features_of_a_released_lit_are_those_of_its_image_tower(
  released, unseen
):
  path = str(released / 'LiT-L16Ti.npz')
  weights = checkpoint.read(path)
  size = weights.preprocessing.size
  image = np.random.default_rng(0).integers(
    256, size=(1, *size, 3), dtype='uint8'
  )
  zimg, _, _ = weights.module().apply(
    {'params': weights.params}, images=image / np.float32(127.5) - 1
  )
  got = vit_jax.load(path).features(image)
  np.testing.assert_allclose(
    got / np.linalg.norm(got, axis=1, keepdims=True), zimg, atol=1e-5
  )


def test_weights_with_a_record_keep_it_under_a_released_name(lit_run, tmp_path):
  shutil.copytree(lit_run[1] / 'artifact', tmp_path / 'lit_b16b')
  weights = zero_shot_lib.load(str(tmp_path / 'lit_b16b'))
  own = zero_shot_lib.load(str(lit_run[1] / 'artifact'))
  assert weights.model == own.model
  assert weights.preprocessing == own.preprocessing


@pytest.mark.slow
def test_mismatches_are_named(released, monkeypatch, lit_run, unseen):
  load = lambda *args: zero_shot_lib.load(*args, pretrained_dir=str(released))
  path = next(iter(unseen))
  weights = load('LiT-L16Ti')
  for kwargs, message in (
    ({'labels': []}, r'Labels are \[\]; none may be empty'),
    ({'labels': ['a', ' ']}, 'none may be empty'),
    ({'templates': ['a photo']}, 'Templates are .* each needs {}'),
    ({'templates': []}, 'each needs {}'),
    ({'paths': ['no.jpg']}, 'There is no image no.jpg: .* on_bad_image=skip'),
    ({'paths': [str(released / 'LiT-L16Ti.npz')]}, 'npz cannot be decoded'),
  ):
    kwargs = {'paths': [path], 'labels': ['a']} | kwargs
    with pytest.raises(errors.UserError, match=message):
      list(zero_shot_lib.classify(weights, **kwargs))

  (released / 'LiT-L16Ti.model').unlink()

  def offline(url, path):
    raise errors.UserError(f'{url} cannot be fetched.')

  monkeypatch.setattr(download, 'download', offline)
  with pytest.raises(
    errors.UserError,
    match='Ti.model is missing .*gs://vit_models/lit/LiT-L16Ti.model cannot',
  ):
    load('LiT-L16Ti')
  (released / 'LiT-L16Ti.model').write_text('x')
  shutil.copy(GOLDEN / 'lit_bert.npz', released / 'LiT-L16Ti.npz')
  with pytest.raises(errors.UserError, match=r'(?s)LiT-L16Ti.npz does not fit'):
    load('LiT-L16Ti')

  whole = lit_run[1] / 'artifact'
  for name, damage, message in (
    ('missing', lambda p: (p / 'vocabulary.txt').unlink(), 'is not a whole'),
    ('classes', forget_vocabulary, 'its vocabulary is not known. Set'),
  ):
    shutil.copytree(whole, released / name)
    damage(released / name)
    with pytest.raises(errors.UserError, match=message):
      load(str(released / name))


def forget_vocabulary(folder):
  config = json.loads((folder / 'config.json').read_text())
  del config['vocabulary']
  (folder / 'config.json').write_text(json.dumps(config))


@pytest.mark.slow
def test_a_vocabulary_past_the_embeddings_is_refused(lit_run, tmp_path, unseen):
  weights = zero_shot_lib.load(str(lit_run[1] / 'artifact'))
  words = '\n'.join(['[PAD]', '[CLS]', *map(str, range(39))])
  (tmp_path / 'long.txt').write_text(words)
  weights = dataclasses.replace(weights, vocabulary=str(tmp_path / 'long.txt'))
  with pytest.raises(errors.UserError, match='ids up to 41, .* for 40 ids'):
    list(zero_shot_lib.classify(weights, list(unseen), ['a']))


@pytest.mark.slow
def test_bad_images_are_skipped(lit_run, unseen, tmp_path, caplog):
  weights = zero_shot_lib.load(str(lit_run[1] / 'artifact'))
  bad = tmp_path / 'bad.png'
  bad.write_bytes(b'x')
  good = list(unseen)[:3]
  names = [good[0], str(bad), *good[1:]]
  classify = lambda names, **changes: list(
    zero_shot_lib.classify(
      weights, names, COLOURS, on_bad_image='skip', **changes
    )
  )
  got = classify(names, batch_size=2)
  assert got == classify(good, batch_size=2)
  assert [name for name, _ in got] == good
  assert f'Skipped {bad}' in caplog.text
  with pytest.raises(errors.UserError, match='None of 1 images'):
    classify([str(bad)])


def test_lists_come_from_text_or_files(tmp_path):
  (tmp_path / 'list').write_text('a b\n\n c, d \n')
  assert zero_shot.read_list(str(tmp_path / 'list')) == ['a b', 'c, d']
  assert zero_shot.read_list('a b, c') == ['a b', 'c']
  (tmp_path / 'bom.txt').write_text('\ufeffcat\ndog\n')
  assert zero_shot.read_list(str(tmp_path / 'bom.txt')) == ['cat', 'dog']
  (tmp_path / 'latin.txt').write_bytes(b'caf\xe9')
  for name in ('latin.txt', 'missing.txt'):
    with pytest.raises(errors.UserError, match=f'{name} cannot be read'):
      zero_shot.read_list(str(tmp_path / name))
