"""Contact sheets show the images and labels of a batch."""

import cv2
from golden_files import GOLDEN
import numpy as np
from processes import call_command
import pytest
from run_files import tiny
from runs import run_file
from runs import tiny_lit

from vit_jax.reporting import contact_sheet
from vit_jax.runtime import errors

folder_config = run_file('configs/folder.py')
COLOURS = {'blue': 2, 'green': 1, 'red': 0}  # Channels, in RGB; see `pictures`.


def config_of(folder, **pp):
  config = tiny.get_config(str(folder))
  config.pp.update(pp)
  return config


@pytest.mark.parametrize('test', [False, True])
def test_images_have_their_labels(image_folder, test):
  config = config_of(image_folder, mean=(0.3, 0.4, 0.5), std=(0.2,))
  images, captions = contact_sheet.load_batch(config, 18, test=test)
  assert len(images) == len(captions) == (15 if test else 18)
  assert images.shape[1:] == (16, 24, 3)
  assert images.min() >= -1e-5
  assert images.max() <= 1 + 1e-5
  for image, [name] in zip(images, captions, strict=True):
    mean = image.mean((0, 1)) * 255
    assert np.argmax(mean) == COLOURS[name]
    assert mean[COLOURS[name]] == pytest.approx(160, abs=25)
  if test:
    assert [name for [name] in captions].count('red') == 5


def test_weights_decide_the_size_of_images(image_folder):
  config = folder_config.get_config(
    f'{GOLDEN / "vit_token.npz"},{image_folder}'
  )
  images, _ = contact_sheet.load_batch(config, 2, test=False)
  assert images.shape == (2, 32, 32, 3)


def test_mixed_images_have_two_labels(image_folder):
  config = config_of(image_folder, mixup=1.0)
  config.seed = 3
  images, captions = contact_sheet.load_batch(config, 12, test=False)
  assert {len(lines) for lines in captions} == {1, 2}
  for image, lines in zip(images, captions, strict=True):
    shares = {name: float(x) for x, name in (line.split() for line in lines)}
    assert sum(shares.values()) == pytest.approx(1, abs=0.011)
    mean = image.mean((0, 1)) * 255
    for name, channel in COLOURS.items():
      # 120 and noise of 40 on average.
      want = 40 + 120 * shares.get(name, 0)
      assert mean[channel] == pytest.approx(want, abs=15)


def test_sheet_places_images_and_cuts_captions():
  rng = np.random.default_rng(0)
  images = rng.random((5, 16, 32, 1)).astype(np.float32)
  captions = [['one'], ['two'], ['three'], ['W' * 99, 'x'], ['']]
  sheet = contact_sheet.draw(images, captions)
  # Three columns and two rows; each pixel four times as large.
  assert sheet.shape == (2 * (64 + 2 * 16 + 8), 3 * (128 + 4), 3)
  want = np.round(images[1, ..., 0] * 255)
  np.testing.assert_array_equal(sheet[:64:4, 132:260:4, 0], want)
  assert np.any(sheet[64:80, 132:260] < 100)  # Text.
  assert np.all(sheet[80:96, 132:260] == 255)  # No second line.
  fourth = sheet[104 + 64 :, :132]
  assert np.any(fourth[:16] < 100)
  assert np.all(fourth[:, 128:] == 255)  # Cut, not over its neighbour.
  assert np.all(sheet[104:, 2 * 132 :] == 255)  # No sixth image.
  with pytest.raises(errors.UserError, match='2 channels cannot be shown'):
    contact_sheet.draw(images.reshape(5, 16, 16, 2), captions)


def test_command_writes_a_sheet(image_folder, tmp_path):
  def command(*args):
    return call_command(
      'show_batch',
      f'--config=tests/run_files/tiny.py:{image_folder}',
      '--num=9',
      *args,
    )

  result = command(
    '--config.pp.augmentation=medium1',
    f'--output={tmp_path / "new" / "sheet.png"}',
  )
  assert result.returncode == 0, result.stderr
  assert result.stdout == f'9 images are in {tmp_path / "new" / "sheet.png"}.\n'
  sheet = cv2.imread(str(tmp_path / 'new' / 'sheet.png'))
  # 16 x 24 pixels, six times as large, and two lines of text.
  assert sheet.shape == (3 * (96 + 2 * 16 + 8), 3 * (144 + 4), 3)
  for name, message in (
    ('new/sheet.png/x.png', 'x.png cannot be written: File exists.'),
    ('sheet.jpg', 'sheet.jpg must end in .png.'),
  ):
    result = command('--test', f'--output={tmp_path / name}')
    assert result.returncode == 1
    assert result.stderr.endswith(f'{message}\n')


def test_captions_are_refused(captions):
  with pytest.raises(errors.UserError, match="'contrastive': its images have"):
    contact_sheet.load_batch(tiny_lit(captions), 4, test=False)
