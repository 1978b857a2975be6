"""Data sets by name and by folder; wrong names and splits."""

import hashlib
import io
import pickle
import shutil
import tarfile

import cv2
import numpy as np
import pytest
import tensorflow_datasets as tfds

from vit_jax.data import cifar
from vit_jax.data import decoding
from vit_jax.data import pipeline
from vit_jax.data import prepared as prepared_lib
from vit_jax.data import sources
from vit_jax.runtime import errors


def test_digits_have_the_official_split():
  train = sources.get_source('digits', 'train')
  test = sources.get_source('digits', 'test')
  assert (len(train), len(test)) == (1437, 360)
  assert train.class_names == list('0123456789')
  assert train.image_shape == (8, 8, 1)
  example = test[0]
  assert example['image'].dtype == np.uint8
  assert example['image'].max() > 200
  images = {e['image'].tobytes() for e in (train[i] for i in range(1437))}
  assert test[5]['image'].tobytes() not in images


def test_folder_gives_images_and_labels(image_folder):
  source = sources.get_source(str(image_folder), 'train')
  assert len(source) == 36
  assert source.class_names == ['blue', 'green', 'red']
  for i in range(36):
    example = source[i]
    assert source.class_names[example['label']] in example['name']
    image = decoding.decode(example['image'])
    assert image.mean(axis=(0, 1)).argmax() == 2 - example['label']


def test_folder_slices_have_every_class_and_do_not_overlap(image_folder):
  def names(split):
    source = sources.get_source(str(image_folder), split)
    examples = [source[i] for i in range(len(source))]
    assert {e['label'] for e in examples} == {0, 1, 2}
    return {e['name'] for e in examples}

  most, rest = names('train[:60%]'), names('train[60%:]')
  assert len(most) + len(rest) == 36
  assert not most & rest
  assert names('train[:60%]+train[60%:]') == most | rest
  assert len(names('test[:9]+train')) == 45


def test_folder_order_depends_on_names_alone(image_folder, tmp_path):
  copy = shutil.copytree(image_folder, tmp_path / 'copy')

  def order(root):
    source = sources.get_source(str(root), 'train')
    return [source[i]['name'].removeprefix(str(root)) for i in range(36)]

  assert order(image_folder) == order(copy)
  assert order(image_folder) != sorted(order(image_folder))


def test_formats_cases_and_nesting(image_folder):
  folder = image_folder / 'train' / 'red' / 'more' / 'deep'
  folder.mkdir(parents=True)
  image = np.full((9, 9, 3), 50, np.uint8)
  for name in ('a.JPG', 'b.jpeg', 'c.Png', 'd.webp', 'e.BMP'):
    cv2.imwrite(str(folder / name), image)
  (folder / 'notes.txt').write_text('no image')
  (folder / '.hidden.jpg').write_text('no image')
  source = sources.get_source(str(image_folder), 'train')
  assert len(source) == 36 + 5
  decoded = pipeline.Decoded(source)
  assert all(decoded[i]['image'].shape[-1] == 3 for i in range(41))


def test_a_missing_test_split_is_not_replaced_by_training(image_folder):
  for split in ('val', 'train+val'):
    with pytest.raises(errors.UserError, match='cannot be read'):
      sources.get_source(str(image_folder), split)


def test_validation_folder_stands_in_for_test(image_folder):
  (image_folder / 'test').rename(image_folder / 'val')
  assert len(sources.get_source(str(image_folder), 'test')) == 15
  assert len(sources.get_source(str(image_folder), 'val[:5]')) == 5


@pytest.mark.parametrize(
  'split, message',
  [
    ('dev', r"'dev' .*test \(15 images\), train \(36 images\);"),
    ('train[:x%]', r"'train\[:x%\]' .* cannot be read"),
    ('train[100:]', 'cannot be read'),
    ('train[:0]', 'is empty'),
  ],
)
def test_wrong_splits_are_named(image_folder, split, message):
  with pytest.raises(errors.UserError, match=message):
    sources.get_source(str(image_folder), split)


def test_an_empty_folder_is_refused(tmp_path):
  (tmp_path / 'train' / 'cat').mkdir(parents=True)
  with pytest.raises(errors.UserError, match=f'{tmp_path} has no images. It'):
    sources.get_source(str(tmp_path), 'train')


def test_a_folder_without_images_does_not_become_a_class(image_folder, caplog):
  (image_folder / 'train' / 'zebra').mkdir()
  source = sources.get_source(str(image_folder), 'train')
  assert source.class_names == ['blue', 'green', 'red']
  assert f'become classes: {image_folder}/train/zebra' in caplog.text


@pytest.mark.parametrize('name', ['', '/no/such/folder', './data'])
def test_a_missing_folder_is_named(name):
  with pytest.raises(errors.UserError, match='no such folder here'):
    sources.get_source(name, 'train')


def cifar_archive(path, name, label_bytes, files, names_file, names):
  rng = np.random.RandomState(0)
  content = {names_file: '\n'.join(names).encode() + b'\n\n'}
  for i, file in enumerate(files):
    records = rng.randint(0, 256, (4, label_bytes + 3072), np.uint8)
    records[:, label_bytes - 1] = [i, 0, 1, 2]
    records[0, label_bytes : label_bytes + 1024] = 7  # Red.
    records[0, label_bytes + 1024 : label_bytes + 2048] = 8
    content[file] = records.tobytes()
  with tarfile.open(path / name, 'w:gz') as tar:
    for file, data in content.items():
      info = tarfile.TarInfo(f'folder/{file}')
      info.size = len(data)
      tar.addfile(info, io.BytesIO(data))


def test_cifar10_reads_the_authors_archive(tmp_path):
  files = [*(f'data_batch_{i}.bin' for i in range(1, 6)), 'test_batch.bin']
  cifar_archive(
    tmp_path, 'cifar-10-binary.tar.gz', 1, files, 'batches.meta.txt', 'abcdef'
  )
  train = sources.get_source('cifar10', 'train', data_dir=str(tmp_path))
  assert len(train) == 20
  assert [train[i]['label'] for i in (0, 4, 16)] == [0, 1, 4]
  np.testing.assert_array_equal(train[4]['image'][0, 0, :2], [7, 8])
  assert train.class_names == list('abcdef')
  part = sources.get_source(
    'cifar10', 'train[:50%]+test', data_dir=str(tmp_path)
  )
  assert len(part) == 14
  np.testing.assert_array_equal(part[9]['image'], train[9]['image'])
  assert part[10]['label'] == 5
  assert pipeline.Decoded(train).is_raw


def test_cifar100_has_fine_labels(tmp_path):
  cifar_archive(
    tmp_path, 'cifar-100-binary.tar.gz', 2, ['train.bin', 'test.bin'],
    'fine_label_names.txt', ['apple', 'bear', 'bee'],
  )  # fmt: skip
  test = sources.get_source('cifar100', 'test', data_dir=str(tmp_path))
  assert [test[i]['label'] for i in range(4)] == [1, 0, 1, 2]
  np.testing.assert_array_equal(test[0]['image'][3, 3, :2], [7, 8])
  assert test.class_names == ['apple', 'bear', 'bee']


def test_cifar_is_checked_after_the_download(tmp_path, monkeypatch):
  archive = b'not the archive'

  def fetch(url, part):
    assert url.endswith('/cifar-10-binary.tar.gz')
    part.write_bytes(archive)

  monkeypatch.setattr('vit_jax.runtime.download._fetch', fetch)
  with pytest.raises(errors.UserError) as e:
    cifar.load('cifar10', tmp_path)
  assert hashlib.sha256(archive).hexdigest() in str(e.value)
  assert 'config.tfds_data_dir' in str(e.value)
  assert not list(tmp_path.iterdir())
  (tmp_path / 'cifar-10-binary.tar.gz').write_bytes(archive)
  with pytest.raises(errors.UserError, match='Delete it to download it again'):
    cifar.load('cifar10', tmp_path)


class Shapes(tfds.core.GeneratorBasedBuilder):
  """Twelve PNG images of three shapes."""

  VERSION = tfds.core.Version('1.0.0')
  pkg_dir_path = '.'

  def _info(self):
    return tfds.core.DatasetInfo(
      builder=self,
      features=tfds.features.FeaturesDict(
        {
          'image': tfds.features.Image(shape=(None, None, 3)),
          'label': tfds.features.ClassLabel(names=['disc', 'ring', 'star']),
        }
      ),
    )

  def _split_generators(self, dl_manager):
    return {
      'train': self._generate_examples(12),
      'test': self._generate_examples(3),
    }

  def _generate_examples(self, count):
    for i in range(count):
      image = np.full((10, 12, 3), 20 * i, np.uint8)
      data = io.BytesIO(cv2.imencode('.png', image)[1].tobytes())
      yield i, {'image': data, 'label': i % 3}


@pytest.fixture(scope='module')
def tfds_dir(tmp_path_factory):
  root = tmp_path_factory.mktemp('tfds')
  builder = Shapes(data_dir=str(root), file_format='array_record')
  builder.download_and_prepare()
  return root


def test_tfds_data_prepared_as_array_record(tfds_dir):
  source = sources.get_source('shapes', 'train[:75%]', data_dir=str(tfds_dir))
  assert len(source) == 9
  assert source.class_names == ['disc', 'ring', 'star']
  for i in range(9):
    example = source[i]
    image = decoding.decode(example['image'])
    assert image.shape == (10, 12, 3)
    assert image[0, 0, 0] // 20 % 3 == example['label']
  again = pickle.loads(pickle.dumps(source))
  assert again[3]['label'] == source[3]['label']


def test_missing_tfds_data_and_splits_are_named(tfds_dir):
  with pytest.raises(errors.UserError) as e:
    sources.get_source('flowers', 'train', data_dir=str(tfds_dir))
  assert f'vit-jax prepare flowers --data_dir={tfds_dir}' in str(e.value)
  assert '[prepare]' in str(e.value)
  with pytest.raises(errors.UserError, match=r'train \(12 images\)'):
    sources.get_source('shapes', 'dev', data_dir=str(tfds_dir))


def test_preparing_an_unknown_data_set_is_refused(tmp_path):
  with pytest.raises(errors.UserError) as e:
    prepared_lib.prepare('no_such_data_set', data_dir=str(tmp_path))
  assert 'no_such_data_set cannot be prepared' in str(e.value)
  assert '\n' not in str(e.value)


def test_tfds_versions_and_configs_are_chosen(tfds_dir, tmp_path):
  root = tmp_path / 'data'
  prepared = tfds_dir / 'shapes' / '1.0.0'
  for version in ('9.0.0', '10.0.0'):
    shutil.copytree(prepared, root / 'shapes' / version)
  for config in ('large', 'small'):
    shutil.copytree(prepared, root / 'forms' / config / '1.0.0')

  def source(name):
    return sources.get_source(name, 'train', data_dir=str(root))

  assert '10.0.0' in str(prepared_lib._builder('shapes', root).data_path)
  assert len(source('shapes:9.0.0')) == len(source('forms/small')) == 12
  with pytest.raises(
    errors.UserError, match=r'one of forms/large, forms/small'
  ):
    source('forms')
  with pytest.raises(errors.UserError, match=r'shapes:8.0.0 is neither'):
    source('shapes:8.0.0')


def test_tfrecord_data_names_the_command_that_converts_it(
  tfds_dir, monkeypatch
):
  def refuse(*args, **kwargs):
    raise NotImplementedError

  monkeypatch.setattr(tfds.core.DatasetBuilder, 'as_data_source', refuse)
  with pytest.raises(errors.UserError, match='tfds convert_format'):
    sources.get_source('shapes', 'train', data_dir=str(tfds_dir))


def test_files_that_users_must_fetch_are_named(tmp_path):
  message = 'imagenet2012 cannot be prepared: Manual directory .* is empty'
  with pytest.raises(errors.UserError, match=message):
    prepared_lib.prepare('imagenet2012', data_dir=str(tmp_path))


def test_a_configuration_that_a_data_set_lacks_is_refused(tmp_path):
  with pytest.raises(errors.UserError, match='cifar10/foo cannot be prepared'):
    prepared_lib.prepare('cifar10/foo', data_dir=str(tmp_path))
