"""Folders of images: unread files are counted, classes compare as text."""

import os
import pathlib
import shutil
import unicodedata

import cv2
import numpy as np
import pytest

from vit_jax.data import image_files
from vit_jax.data import sources
from vit_jax.runtime import errors


def add_images(folder, *names):
  folder.mkdir(parents=True, exist_ok=True)
  for name in names:
    image = np.full((9, 9, 3), 50, np.uint8)
    (folder / name).write_bytes(cv2.imencode('.png', image)[1].tobytes())


def names_of(root, split):
  source = sources.get_source(str(root), split)
  return [source[i]['name'] for i in range(len(source))]


def message(root, split='train'):
  with pytest.raises(errors.UserError) as e:
    sources.get_source(str(root), split)
  text = str(e.value)
  assert '\n' not in text
  assert '--' not in text
  return text


def test_files_that_are_not_read_are_counted_by_suffix(image_folder, caplog):
  add_images(
    image_folder / 'train' / 'red', 'a.jp2', 'b.JP2', 'c.jxl', '.x.jp2'
  )
  add_images(image_folder / 'test' / 'red', 'a.jp2')
  add_images(image_folder / 'train' / 'blue' / 'more', 'x', 'notes.txt')
  source = sources.get_source(str(image_folder), 'train')
  assert len(source) == 36
  assert source.unread == {'.jp2': 2, '.jxl': 1, '.txt': 1, 'no suffix': 1}
  assert '5 files are not read, 2 .jp2, 1 .jxl, 1 .txt, 1 no' in caplog.text
  both = sources.get_source(str(image_folder), 'train[:50%]+test+train[50%:]')
  assert sum(both.unread.values()) == 6


def test_a_class_of_formats_that_are_not_read_is_refused(image_folder):
  add_images(image_folder / 'train' / 'grey', 'a.jp2', 'b.jp2', 'c.txt')
  assert 'train/grey has no images that can be read, but 2 .jp2, 1 .txt' in (
    message(image_folder)
  )


def test_images_in_no_class_folder_are_counted(image_folder, caplog):
  add_images(image_folder / 'train', 'a.jpg', 'b.png')
  sources.get_source(str(image_folder), 'train')
  assert 'train: 2 images are in no class folder and are left' in caplog.text


def test_images_outside_class_folders_show_the_layout(tmp_path):
  add_images(tmp_path / 'train', 'a.png', 'b.png')
  assert message(tmp_path) == (
    f'{tmp_path} has 2 images in train, but not in class folders. It must look'
    f' like <class>/<image>, or train/<class>/<image> and test/<class>/<image>,'
    f' with images {", ".join(image_files.SUFFIXES)}.'
  )


@pytest.mark.parametrize(
  ('names', 'want'),
  [((), 'has no images. It'), (('a.jp2',), 'has no images, but 1 .jp2. It'),
   (('a.png',), 'has 1 images, but not in class folders. It')],
)  # fmt: skip
def test_missing_classes_show_what_is_there(tmp_path, names, want):
  add_images(tmp_path, *names)
  assert want in message(tmp_path)


def test_folders_of_folders_may_be_classes_or_splits(tmp_path):
  for name in 'ab':
    add_images(tmp_path / name / 'inside', '0.png')
  with pytest.raises(errors.UserError, match='no folder train, but a, b'):
    sources.get_source(str(tmp_path), 'train')


@pytest.mark.parametrize('split', ['training', 'train2017', 'train2017[:50%]'])
def test_splits_of_other_names_are_taken(split, tmp_path):
  for name in ('training', 'train2017'):
    add_images(tmp_path / name / 'a', '0.png', '1.png')
  assert len(sources.get_source(str(tmp_path), split)) == (
    1 if '%' in split else 2
  )


@pytest.mark.parametrize('split', ['test', 'val', 'valid', 'validation'])
def test_a_validation_split_has_any_of_its_names(split, tmp_path):
  for name in ('train', 'val'):
    add_images(tmp_path / name / 'a', '0.png')
  assert len(sources.get_source(str(tmp_path), split)) == 1


def test_a_class_that_training_lacks_is_named_as_such(image_folder):
  add_images(image_folder / 'test' / 'zebra', 'a.png')
  text = message(image_folder)
  assert text.startswith(
    f'{image_folder}/test has 1 class (zebra) that {image_folder}/train lacks'
  )
  shutil.rmtree(image_folder / 'test' / 'zebra')
  shutil.rmtree(image_folder / 'test' / 'blue')
  text = message(image_folder)
  assert 'test has no images of 1 class (blue) of the 3 in the data' in text


@pytest.mark.parametrize('splits', [('',), ('train', 'test')])
def test_classes_that_are_numbers_are_in_their_order(splits, tmp_path):
  want = [str(grade) for grade in range(12)]
  for split in splits:
    for grade in want:
      add_images(tmp_path / split / grade, f'{split}{grade}.png')
  assert sources.get_source(str(tmp_path), 'train').class_names == want


@pytest.mark.parametrize('form', ['NFC', 'NFD'])
def test_class_names_are_equal_in_both_unicode_forms(image_folder, form):
  other = {'NFC': 'NFD', 'NFD': 'NFC'}[form]
  for split, kind in (('train', form), ('test', other)):
    name = unicodedata.normalize(kind, 'crème brûlée')
    (image_folder / split / 'red').rename(image_folder / split / name)
  want = ['blue', unicodedata.normalize('NFC', 'crème brûlée'), 'green']
  assert sources.get_source(str(image_folder), 'train').class_names == want
  assert len(names_of(image_folder, 'train+test')) == 36 + 15


def test_one_class_in_both_unicode_forms_is_one_class(image_folder):
  for form in ('NFC', 'NFD'):
    name = unicodedata.normalize(form, 'é')
    add_images(image_folder / 'train' / name, f'{form}.png')
  add_images(image_folder / 'test' / 'é', 'a.png')
  source = sources.get_source(str(image_folder), 'train')
  assert len(source.class_names) == 4
  assert np.bincount(source.labels()).tolist() == [12, 12, 12, 2]


def test_both_unicode_forms_of_file_names_give_one_order(tmp_path):
  orders = []
  for form in ('NFC', 'NFD'):
    root = tmp_path / form
    for split in ('train', 'test'):
      for name in ('café', 'blue'):
        folder = root / split / unicodedata.normalize(form, name)
        names = [unicodedata.normalize(form, f'é{i}.png') for i in range(9)]
        add_images(folder, *names)
    names = [os.path.relpath(x, root) for x in names_of(root, 'train')]
    orders.append([unicodedata.normalize('NFC', name) for name in names])
  assert orders[0] == orders[1]


def test_class_names_are_text_whatever_the_bytes(image_folder):
  for split in ('train', 'test'):
    folder = os.fsencode(image_folder / split)
    os.rename(folder + b'/red', folder + b'/caf\xe9')
  source = sources.get_source(str(image_folder), 'train')
  assert source.class_names == ['blue', 'caf\\xe9', 'green']
  assert source[0]['image']


def test_links_to_folders_above_add_no_images(image_folder):
  for link, target in (
    ('train/red/again', 'train/red'),
    ('train/red/up', 'train'),
    ('train/all', 'train'),
    ('all', '.'),
  ):
    (image_folder / link).symlink_to(image_folder / target)
  assert len(names_of(image_folder, 'train')) == 36
  # A folder that is given alone has no known parents.
  red = image_folder / 'train' / 'red'
  (red / 'up').unlink()
  assert len(image_files.find(red).images) == 12


def test_links_to_other_folders_are_followed_once(image_folder, tmp_path):
  add_images(tmp_path / 'elsewhere' / 'deep', 'a.png', 'b.png')
  for name in ('one', 'two'):
    (image_folder / 'train' / 'red' / name).symlink_to(tmp_path / 'elsewhere')
  assert len(names_of(image_folder, 'train')) == 38


@pytest.mark.skipif(os.getuid() == 0, reason='root may read everything')
def test_a_folder_that_cannot_be_read(image_folder):
  (image_folder / 'train' / 'red').chmod(0)
  try:
    assert 'red cannot be read: Permission denied' in message(image_folder)
  finally:
    (image_folder / 'train' / 'red').chmod(0o755)


@pytest.mark.parametrize(
  'root, name', [('', 'train'), ('', 'test/red'), ('train', 'train')]
)
def test_a_folder_that_cannot_be_listed_is_named(
  image_folder, root, name, monkeypatch
):
  closed = str(image_folder / name)

  def unless_closed(function):
    def call(path='.'):
      if str(path) == closed:
        raise PermissionError(13, 'Permission denied', closed)
      return function(path)

    return call

  for function in ('listdir', 'scandir'):
    monkeypatch.setattr(os, function, unless_closed(getattr(os, function)))
  want = f'{closed} cannot be read: Permission denied.'
  assert message(image_folder / root) == want


def test_only_one_module_knows_the_suffixes():
  package = pathlib.Path(image_files.__file__).parents[1]
  knowing = [
    path.name
    for path in package.rglob('*.py')
    if "'.png'" in (text := path.read_text()) and "'.jpeg'" in text
  ]
  assert knowing == ['image_files.py']
