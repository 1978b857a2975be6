"""Images of any number of channels and depth: .npy files, TIFFs, arrays."""

import contextlib
import io
import json
import pathlib

import cv2
import numpy as np
from pictures import picture
from PIL import Image
import pyarrow as pa
from pyarrow import parquet
import pytest
from runs import assert_resumes
from runs import tiny

import vit_jax
from vit_jax import checkpoint
from vit_jax.data import batching
from vit_jax.data import decoding
from vit_jax.data import image_files
from vit_jax.data import pixel_values
from vit_jax.data import stacks
from vit_jax.data import survey
from vit_jax.data.augmentation import augment
from vit_jax.data.augmentation import transforms
from vit_jax.reporting import colours
from vit_jax.reporting import report
from vit_jax.runtime import errors
from vit_jax.training import resolve

DEEP = np.dstack([picture(0), picture(1)[..., :2]]).astype(np.uint16) * 39
FLOATS = DEEP.astype(np.float32) / 65535


def saved(array, **options):
  file = io.BytesIO()
  np.save(file, array, **options)
  return file.getvalue()


def test_depths_have_one_unit():
  np.testing.assert_array_equal(decoding.decode(saved(picture())), picture())
  want = DEEP / 257
  for array in (DEEP, DEEP.astype('>u2'), np.asfortranarray(DEEP), FLOATS):
    got = decoding.decode(saved(array), channels=5)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=1e-6)
  flat = decoding.decode(saved(FLOATS[..., 0]), channels=None)
  np.testing.assert_array_equal(flat, got[..., :1])
  normalised = augment.normalize(got[None], (0.5,) * 5, (0.25,) * 5)
  np.testing.assert_allclose(normalised[0], FLOATS * 4 - 2, atol=1e-6)


@pytest.mark.parametrize(
  'array, match',
  [
    (FLOATS.astype(float), 'float64 of shape .* uint16 or float32'),
    (DEEP[None], r'\[H, W, C\]'),
    (DEEP[0, 0], r'\[H, W, C\]'),
    (DEEP[:0], r'\(0, 56, 5\)'),
    (DEEP[..., :4], 'has 4 channels, must have 5$'),
    (np.moveaxis(DEEP, -1, 0), 'has 56 channels, must have 5: np.moveaxis'),
    (np.where(FLOATS > 0.1, np.float32(np.nan), FLOATS), 'NaN or infinite'),
  ],
)
def test_arrays_that_are_no_images_are_refused(array, match):
  with pytest.raises(ValueError, match=match):
    decoding.decode(saved(array), channels=5)


def test_damaged_files_are_refused():
  data = saved(DEEP)
  for cut, match in ((-1, '22399 bytes, its .* says 22400'), (20, 'header')):
    with pytest.raises(ValueError, match=match):
      decoding.decode(data[:cut])
  huge = data.replace(b'(40, 56, 5)', b'(9999999999, 9, 9)')
  with pytest.raises(ValueError, match='damaged'):
    decoding.decode(huge)
  for place in range(8, 60):  # The header, which Python's tokeniser reads.
    for byte in b'\0(\'"\\':
      changed = bytearray(data)
      changed[place] = byte
      with contextlib.suppress(ValueError):
        decoding.decode(bytes(changed))
  objects = saved(np.array([[print]]), allow_pickle=True)
  with pytest.raises(ValueError, match='Python objects'):
    decoding.decode(objects)
  jpeg = cv2.imencode('.jpg', picture())[1].tobytes()
  with pytest.raises(ValueError, match='a picture .* must have 5'):
    decoding.decode(jpeg, channels=5)


@pytest.mark.parametrize(
  'options',
  [
    {'photometric': 'minisblack'},  # Pages.
    {'photometric': 'minisblack', 'planarconfig': 'separate'},
    {'photometric': 'minisblack', 'planarconfig': 'contig'},
    {'photometric': 'minisblack', 'compression': 'deflate'},
    {'imagej': True},
  ],
)
def test_tiffs_equal_arrays(options):
  tifffile = pytest.importorskip('tifffile')
  for array in (DEEP, FLOATS):
    is_contiguous = options.get('planarconfig') == 'contig'
    file = io.BytesIO()
    written = array if is_contiguous else np.moveaxis(array, -1, 0)
    tifffile.imwrite(file, written, **options)
    got = decoding.decode(file.getvalue(), channels=5)
    want = decoding.decode(saved(array), channels=5)
    np.testing.assert_array_equal(got, want)
  for cut in (9, 300, 5000):
    with pytest.raises(ValueError, match='TIFF|must have 5'):
      decoding.decode(file.getvalue()[:cut], channels=5)


def test_resizing_averages_as_pillow_does():
  image = picture().astype(np.float32)
  got = transforms.resize_as_pillow(image, (12, 17), 'bicubic')
  want = Image.fromarray(picture()).resize((17, 12), Image.Resampling.BICUBIC)
  np.testing.assert_allclose(got, np.asarray(want), atol=1.01)
  stack = np.dstack([image, image[..., ::-1], image])
  resized = transforms.resize_as_pillow(stack * 300 - 9, (12, 17), 'bicubic')
  np.testing.assert_allclose(resized[..., :3], got * 300 - 9, rtol=1e-4)
  for size in ((12, 17), (80, 90)):  # As evaluation of pictures, but unrounded.
    got = transforms.eval_image(image, size).make()
    want = transforms.eval_image(picture(), size).make() / 256
    np.testing.assert_allclose(got, want, atol=0.01)


def test_training_treats_all_channels_alike():
  image = np.dstack([picture(), picture() / 3, picture()]).astype(np.float32)
  for options in ({}, {'resize': 20}, {'pad': 3}):
    transform = transforms.TrainImage((16, 16), **options)

    def made(image, seed, transform=transform):
      rng = np.random.default_rng(seed)
      return transform.random_map({'image': image}, rng)['image']

    for seed in range(4):  # Mirrored and not.
      whole = transforms.stack([made(image, seed)])[0]
      part = transforms.stack([made(image[..., 6:].copy(), seed)])[0]
      np.testing.assert_allclose(whole[..., 6:], part, rtol=1e-5)


@pytest.mark.parametrize('channels', [129, 512])
def test_more_channels_than_opencv_resizes_at_once(channels):
  rng = np.random.default_rng(0)
  image = rng.integers(256, size=(9, 7, channels), dtype=np.uint8)
  got = transforms.Pending(image, (6, 5), flip=True).make()
  for k in (0, 127, 128, channels - 1):
    one = transforms.Pending(image[..., k : k + 1].copy(), (6, 5), flip=True)
    np.testing.assert_array_equal(got[..., k : k + 1], one.make())
  resized = transforms.resize(image, (6, 5))
  assert resized.shape == (6, 5, channels)


def test_batches_of_several_depths_are_float32():
  eight, deep = picture(), picture().astype(np.float32)
  both = [transforms.eval_image(x, (20, 20)) for x in (eight, deep)]
  first, second = transforms.stack(both)
  assert first.dtype == np.float32
  np.testing.assert_allclose(first, second, atol=0.01)


@pytest.fixture
def folder(tmp_path):
  """20 images of five channels, 16 bits, in two class folders."""
  rng = np.random.default_rng(0)
  for i in range(20):
    name = tmp_path / 'data' / 'ab'[i % 2]
    name.mkdir(parents=True, exist_ok=True)
    image = rng.integers(100, 4000, (20, 30, 5)).astype(np.uint16)
    image[..., 2] = image[..., 2] // 9 + 3000 * (i % 2)
    np.save(name / f'{i}.npy', image)
  return tmp_path / 'data'


def resolved(folder, **pp):
  config = tiny(folder)
  for name, value in pp.items():
    config.pp[name] = value
  return resolve.resolve(config, measure=False)


def test_a_run_measures_what_the_survey_prints(folder):
  run = resolved(folder)
  found = survey.of_dataset(str(folder))['splits']['train']
  assert found['modes'] == {'uint16, 5 channels': 16}
  files = [run.splits.train.source[i]['name'] for i in range(16)]
  pixels = np.stack([np.load(name) for name in files]).reshape(-1, 5) / 65535
  for name, value in (('mean', pixels.mean(0)), ('std', pixels.std(0))):
    np.testing.assert_allclose(run.config.pp[name], value, rtol=1e-4)
    assert list(run.config.pp[name]) == found[name]
  how = batching.of_config(run.config, run.splits).preprocessing
  assert (how.channels, how.mean) == (5, tuple(found['mean']))
  kept = resolved(folder, mean=(0.1,)).config.pp
  assert (kept.mean, kept.std) == ((0.1,), tuple(found['std']))


def test_pictures_keep_their_scale(tmp_path):
  for i in range(8):
    name = tmp_path / 'ab'[i % 2]
    name.mkdir(exist_ok=True)
    np.save(name / f'{i}.npy', picture(i))
  run = resolved(tmp_path)
  assert (run.config.pp.mean, run.splits.train.is_float) == ((0.5,), False)
  (tmp_path / 'a' / 'x.png').write_bytes(cv2.imencode('.png', picture())[1])
  found = image_files.find(tmp_path / 'a')
  assert (len(found.images), dict(found.unread)) == (1, {'.npy': 4})


def test_what_stacks_cannot_have_is_refused(folder):
  def first(**pp):
    run = resolved(folder, **pp)
    batching.of_config(run.config, run.splits)
    return run.splits.train[0]

  def refused(match, **pp):
    with pytest.raises(errors.UserError, match=match):
      first(**pp)

  refused('5 channels of more bits: leave it and', randaugment=(2, 10))
  refused('colours of', color_jitter=(0.1, 0.1, 0.1, 0))
  refused('None of 16 .*npy: it has 5 channels, must have 4', channels=4)
  refused('it has 5 channels, must have 4', channels=4, mean=(0.5,), std=(0.5,))
  for path in folder.rglob('*.npy'):
    array = np.load(path)
    array[..., 3] = 7
    np.save(path, array)
  refused('Channel 4 of 5 has one value, .* in all 16 images')


def test_values_of_another_unit_are_refused(folder):
  run = resolved(folder)
  how = batching.of_config(run.config, run.splits).preprocessing
  image = np.load(next(folder.rglob('*.npy')))
  pixel_values.check_scale(stacks.as_pixels(image), how)
  with pytest.raises(ValueError, match=r'channel \d is \d+, \d+ standard dev'):
    pixel_values.check_scale(stacks.as_pixels(image.astype(np.float32)), how)


def test_the_first_good_image_decides():
  files = [b'', saved(DEEP)[:-1], saved(DEEP), saved(picture())]
  kind = pixel_values.kind([{'image': data} for data in files])
  assert kind == pixel_values.Kind(channels=5, is_float=True)
  jpeg = cv2.imencode('.jpg', picture())[1].tobytes()
  assert pixel_values.kind([{'image': jpeg}]) == pixel_values.Kind()


def test_stacks_are_shown_in_colours():
  shown = colours.of_image(FLOATS)
  assert shown.shape == (40, 56, 3)
  assert (shown.min(), shown.max()) == (0, 1)
  values = [np.ravel(x[..., 1]) for x in (shown, FLOATS)]
  assert np.corrcoef(*values)[0, 1] > 0.5
  grey = picture(channels=1) / np.float32(255)
  np.testing.assert_array_equal(colours.of_image(grey)[..., 2:], grey)
  assert 'channel 1 of 2' in colours.note(2)
  assert '1, 2 and 3 of 5' in colours.note(5)
  assert not colours.note(3)


def test_tables_and_parquet_have_stacks(folder, tmp_path):
  rows = [
    {'image': str(path), 'label': path.parent.name}
    for path in sorted(folder.rglob('*.npy'))
  ]
  lines = ['image,label', *(f'{row["image"]},{row["label"]}' for row in rows)]
  (tmp_path / 't.csv').write_text('\n'.join(lines))
  data = [
    row | {'image': pathlib.Path(row['image']).read_bytes()} for row in rows
  ]
  parquet.write_table(pa.Table.from_pylist(data), tmp_path / 't.parquet')
  for name in ('t.csv', 't.parquet'):
    run = resolved(tmp_path / name)
    assert run.config.pp.mean == resolved(folder).config.pp.mean
    assert run.splits.test.num_channels == 5
    example = run.splits.train[0]
    assert example['image'].shape == (20, 30, 5)
    assert example['image'].dtype == np.float32


@pytest.mark.slow
def test_a_run_resumes_predicts_and_reports(folder, tmp_path):
  config = tiny(folder)
  config.batch_eval, config.dtype = 8, 'float32'
  config.checkpoint_every = config.eval_every = 2
  assert_resumes(config, tmp_path)
  saved_config = json.loads((tmp_path / 'parts' / 'config.json').read_text())
  model = vit_jax.load(tmp_path / 'parts' / 'artifact')
  how = model.weights.preprocessing
  assert list(how.mean) == saved_config['pp']['mean']
  assert model.image_shape == (16, 24, 5)
  names = sorted(map(str, folder.rglob('*.npy')))[:3]
  arrays = [np.load(name) for name in names]
  want = model.logits(names)
  np.testing.assert_allclose(model.logits(arrays), want, rtol=1e-5)
  np.testing.assert_allclose(
    model.logits(np.stack(arrays)[:1]), want[:1], rtol=1e-4, atol=1e-5
  )
  with pytest.raises(errors.UserError, match='3 channels, .* takes .* with 5'):
    model.predict(picture())
  page = report.of_workdir(str(tmp_path / 'parts')).read_text()
  assert 'channels 1, 2 and 3 of 5 as red, green and blue' in page
  step = checkpoint.read(tmp_path / 'parts')
  assert step.preprocessing == how
