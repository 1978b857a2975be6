"""Artifacts: labels, preprocessing, and where they are written."""

import dataclasses
import json
import math
import pathlib

import cv2
from golden_files import GOLDEN
import jax
from made import random_weights
from made import VIT
import numpy as np
from processes import call_command
import pytest

from vit_jax import checkpoint
from vit_jax import predictor
from vit_jax.data.augmentation import augment
from vit_jax.data.augmentation import transforms
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.weights import array_files
from vit_jax.weights import artifact
from vit_jax.weights import formats
from vit_jax.weights import record as weights_lib
from vit_jax.weights import to_huggingface
from vit_jax.weights.timm import to_timm

ODD_NAMES = ['a\nb', 'c\rd', 'e\x85f', 'g\u2028h', '"i"', 'j\udce9k', '', 'ä l']


def test_artifact_keeps_labels_of_any_text(tmp_path):
  weights = random_weights(VIT, size=32, num_classes=len(ODD_NAMES))
  weights = dataclasses.replace(weights, class_names=ODD_NAMES)
  artifact.save(tmp_path / 'artifact', weights)
  assert artifact.load(tmp_path / 'artifact').class_names == ODD_NAMES
  modes = {p.stat().st_mode for p in (tmp_path / 'artifact').iterdir()}
  assert len(modes) == 1  # Whoever may read one file may read the others.
  # The weights alone find what stands beside them.
  got = checkpoint.read(tmp_path / 'artifact' / 'model.npz')
  assert got.class_names == ODD_NAMES
  lines = (tmp_path / 'artifact' / 'labels.txt').read_text().splitlines()
  assert 'ä l' in lines
  (tmp_path / 'artifact' / 'labels.txt').write_text('one\n')
  with pytest.raises(errors.UserError, match='has 1 lines, .* 8 classes'):
    artifact.load(tmp_path / 'artifact')


@pytest.mark.parametrize('num_classes', [3, 5])
@pytest.mark.parametrize('in_place', [False, True])
def test_weights_that_transformers_saved_again_are_read(
  tmp_path, caplog, num_classes, in_place
):
  weights = dataclasses.replace(
    random_weights(VIT, size=32, num_classes=3),
    task='multilabel',
    loss='sigmoid',
    thresholds=(0.1, 0.2, 0.3),
    info={'splits': ['train[:80%]', 'train[80%:]']},
  )
  artifact.save(tmp_path / 'old', weights)
  trained = random_weights(VIT, size=32, num_classes=num_classes)
  trained.params['head']['kernel'] += 1
  arrays, contents = to_huggingface.export(trained)
  # It keeps fields of a config that it does not know.
  config = json.loads((tmp_path / 'old' / 'config.json').read_text())
  config |= {'id2label': contents['config.json']['id2label']}
  folder = tmp_path / ('old' if in_place else 'new')
  folder.mkdir(exist_ok=True)
  array_files.write_safetensors(arrays, folder / 'model.safetensors')
  files.write_json(
    config | {'transformers_version': '5.23.0'}, folder / 'config.json'
  )
  for path in (folder, folder / 'model.safetensors'):
    caplog.clear()
    got = checkpoint.read(path)
    np.testing.assert_array_equal(
      got.params['head']['kernel'], trained.params['head']['kernel']
    )
    assert got.class_names == trained.class_names
    assert (tuple(got.thresholds), got.info) == ((), {})
    assert 'saved these weights again: thresholds of before' in caplog.text


def with_resize(resize, size=32):
  weights = random_weights(VIT, size=size)
  preprocessing = dataclasses.replace(weights.preprocessing, resize_test=resize)
  return dataclasses.replace(weights, preprocessing=preprocessing)


@pytest.mark.parametrize('resize', [None, 40, (48, 48)])
def test_predictor_of_artifact_sees_pixels_of_evaluation(tmp_path, resize):
  weights = with_resize(resize)
  rng = np.random.default_rng(0)
  head = weights.params['head']
  head['kernel'] = rng.normal(size=head['kernel'].shape).astype(np.float32)
  artifact.save(tmp_path / 'artifact', weights)
  loaded = artifact.load(tmp_path / 'artifact')
  assert loaded.preprocessing.resize_test == resize
  image = rng.integers(0, 256, (50, 70, 3), np.uint8)
  image[:, :12] = 255  # Which the middle leaves out.
  cv2.imwrite(str(tmp_path / 'x.png'), image[..., ::-1])
  [prediction] = predictor.Predictor(loaded).predict(tmp_path / 'x.png')
  element = transforms.EvalImage((32, 32), resize).map({'image': image})
  pixels = augment.normalize(
    transforms.stack([element['image']]),
    weights.preprocessing.mean,
    weights.preprocessing.std,
  )
  logits = loaded.module().apply({'params': loaded.params}, pixels, train=False)
  want = dict(zip(loaded.class_names, jax.nn.softmax(logits)[0], strict=True))
  for name, probability in prediction:
    assert probability == pytest.approx(float(want[name]), rel=1e-4)


def test_resize_test_is_exported():
  def exported(resize, size=32):
    weights = with_resize(resize, size)
    processor = to_huggingface.export(weights)[1]['preprocessor_config.json']
    return processor, to_timm.export(weights)[1]['config.json'][
      'pretrained_cfg'
    ]

  processor, cfg = exported(None)
  assert processor['image_processor_type'] == 'ViTImageProcessor'
  assert (cfg['crop_pct'], cfg['crop_mode']) == (1.0, 'squash')
  processor, cfg = exported(39)
  assert processor['size'] == {'shortest_edge': 39}
  assert processor['crop_size'] == {'height': 32, 'width': 32}
  # timm computes it so.
  assert (math.floor(32 / cfg['crop_pct']), cfg['crop_mode']) == (39, 'center')
  processor, cfg = exported((40, 40))
  assert processor['size'] == {'height': 40, 'width': 40}
  assert (math.floor(32 / cfg['crop_pct']), cfg['crop_mode']) == (40, 'squash')


def test_artifact_of_later_version_is_refused(tmp_path):
  artifact.save(tmp_path / 'artifact', random_weights(VIT, size=32))
  path = tmp_path / 'artifact' / 'config.json'
  config = json.loads(path.read_text())
  config['model']['a_new_setting'] = 1
  path.write_text(json.dumps(config))
  with pytest.raises(errors.UserError, match='does not make a model'):
    checkpoint.read(tmp_path / 'artifact')


def test_has_zero_head_is_false_for_trained_and_missing_heads():
  params = checkpoint.load(GOLDEN / 'vit_patch16_headless.npz')
  assert not weights_lib.has_zero_head(params)
  params = checkpoint.load(GOLDEN / 'vit_token.npz')
  assert not weights_lib.has_zero_head(params)


def test_replaced_folder_keeps_its_neighbours(tmp_path):
  for name in ('x.tmp', 'x.old'):
    (tmp_path / name).mkdir()
    (tmp_path / name / 'precious').touch()
  before = sorted(tmp_path.rglob('*'))
  with files.replaced_folder(tmp_path / 'x') as folder:
    (folder / 'new').touch()
  with files.replaced_folder(tmp_path / 'x') as folder:
    (folder / 'newer').touch()
  with pytest.raises(KeyError), files.replaced_folder(tmp_path / 'x') as folder:
    raise KeyError
  after = sorted(tmp_path.rglob('*'))
  assert set(after) - set(before) == {tmp_path / 'x', tmp_path / 'x' / 'newer'}


@pytest.mark.parametrize('to', ['timm', 'npz'])
def test_convert_names_destination_that_cannot_be_written(tmp_path, to):
  (tmp_path / 'file').touch()
  target = tmp_path / 'file' / ('x.npz' if to == 'npz' else 'x')
  source = str(GOLDEN / 'vit_token.npz')
  result = call_command('convert', source, str(target), f'--to={to}')
  assert result.returncode == 1
  assert 'Traceback' not in result.stderr
  assert f'{target} cannot be written' in result.stderr
  (tmp_path / 'link').symlink_to(tmp_path / 'nowhere')
  with pytest.raises(errors.UserError, match='link exists'):
    formats.convert(
      checkpoint.read(source), str(tmp_path / 'link'), 'huggingface'
    )
  assert {pathlib.Path(p).name for p in tmp_path.iterdir()} == {'file', 'link'}
