"""Batches: the same for any threads, workers or hosts; bad files dealt with."""

import itertools

import numpy as np
import pytest

from vit_jax.data import pipeline
from vit_jax.data import sources
from vit_jax.data.augmentation import transforms
from vit_jax.runtime import errors


def train_batches(root, count, *, seed=0, on_bad_image='raise', **kwargs):
  data = pipeline.Decoded(
    sources.get_source(str(root), 'train'),
    on_bad_image=on_bad_image,
    train=True,
  )
  batches = pipeline.train_batches(
    data, transforms.TrainImage((16, 16)), batch_size=8, seed=seed, **kwargs
  )
  return list(itertools.islice(batches, count)), data


def assert_equal(some, others):
  assert len(some) == len(others)
  for a, b in zip(some, others, strict=True):
    for name in a:
      np.testing.assert_array_equal(a[name], b[name])


@pytest.mark.parametrize(
  'options', [{'num_threads': 1}, {'num_threads': 7}, {'num_workers': 2}]
)
def test_the_same_batches_for_any_threads_and_workers(image_folder, options):
  want, _ = train_batches(image_folder, 10)
  assert_equal(train_batches(image_folder, 10, **options)[0], want)


def test_the_same_batches_for_any_number_of_hosts(image_folder):
  want, _ = train_batches(image_folder, 6)
  hosts = [train_batches(image_folder, 6, shard=(i, 4))[0] for i in range(4)]
  joined = [
    {k: np.concatenate([part[k] for part in parts]) for k in parts[0]}
    for parts in zip(*hosts, strict=True)
  ]
  assert_equal(joined, want)


def test_the_step_is_the_position(image_folder):
  want, _ = train_batches(image_folder, 12)
  assert_equal(train_batches(image_folder, 5, first_step=7)[0], want[7:])


def test_seeds_and_epochs_differ_and_every_image_comes_once_an_epoch():
  source = sources.get_source('digits', 'train')
  data = pipeline.Decoded(source, train=True)

  def epochs(seed):
    batches = pipeline.train_batches(
      data, transforms.TrainImage((8, 8)), batch_size=479, seed=seed
    )
    batches = list(itertools.islice(batches, 6))
    images = [b['image'].reshape(479, -1) for b in batches]
    return np.concatenate(images[:3]), np.concatenate(images[3:])

  first, second = epochs(0)
  assert not np.array_equal(first, second)
  assert not np.array_equal(first, epochs(1)[0])
  np.testing.assert_array_equal(
    np.unique(first, axis=0, return_counts=True)[1],
    np.unique(second, axis=0, return_counts=True)[1],
  )
  every = np.stack([source[i]['image'].ravel() for i in range(len(source))])
  np.testing.assert_array_equal(
    np.unique(first, axis=0), np.unique(every, axis=0)
  )


def test_small_images_travel_raw_and_photographs_as_uint8(image_folder):
  batches, _ = train_batches(image_folder, 1)
  assert batches[0]['image'].dtype == np.uint8
  assert batches[0]['image'].shape == (8, 16, 16, 3)
  folder = sources.get_source(str(image_folder), 'train')
  assert not pipeline.Decoded(folder).is_raw
  digits = sources.get_source('digits', 'train')
  assert pipeline.Decoded(digits).is_raw
  assert not pipeline.Decoded(digits, on_host=True).is_raw


class Recorded(pipeline.Decoded):
  """Keeps the indices that are read."""

  def __getitem__(self, index):
    self.reads = [*getattr(self, 'reads', ()), index]
    return super().__getitem__(index)


def test_each_host_reads_its_own_images_alone():
  reads = []
  for shard in range(4):
    # Of its own, as the threads of the last one may still read.
    data = Recorded(sources.get_source('digits', 'test'))  # 360 of them.
    batches = pipeline.train_batches(
      data,
      transforms.TrainImage((8, 8)),
      batch_size=80,
      seed=0,
      shard=(shard, 4),
      num_threads=1,
      prefetch=1,
    )
    next(batches)
    batches.close()
    # Those of a batch, and of two or three to come.
    assert 20 <= len(data.reads) <= 80
    reads.append(list(data.reads))
  assert len(set().union(*reads)) == sum(len(r) for r in reads)


@pytest.mark.parametrize(
  'batch_size, shards', [(4, 1), (4, 2), (6, 3), (15, 1), (40, 1), (40, 4)]
)
def test_evaluation_reads_every_image_once(image_folder, batch_size, shards):
  source = sources.get_source(str(image_folder), 'test')
  labels, masked, counts = [], 0, set()
  for shard in range(shards):
    batches = list(
      pipeline.eval_batches(
        pipeline.Decoded(source),
        transforms.EvalImage((16, 16)),
        batch_size=batch_size,
        shard=(shard, shards),
      )
    )
    counts.add(len(batches))
    for batch in batches:
      assert batch['image'].shape == (batch_size // shards, 16, 16, 3)
      labels.extend(batch['label'][batch['mask']])
      masked += int((~batch['mask']).sum())
  assert sorted(labels) == [0] * 5 + [1] * 5 + [2] * 5
  assert len(counts) == 1  # Hosts that make different numbers of steps hang.
  assert masked == -15 % batch_size


@pytest.fixture
def bad_folder(image_folder):
  (image_folder / 'train' / 'red' / '3.jpg').write_text('no image')
  (image_folder / 'test' / 'blue' / '2.jpg').write_bytes(b'')
  return image_folder


def test_a_bad_image_is_named(bad_folder):
  with pytest.raises(errors.UserError, match=r'red/3.jpg cannot be decoded'):
    train_batches(bad_folder, 10)
  data = pipeline.Decoded(sources.get_source(str(bad_folder), 'test'))
  with pytest.raises(errors.UserError, match=r'blue/2.jpg .*on_bad_image=skip'):
    list(
      pipeline.eval_batches(data, transforms.EvalImage((8, 8)), batch_size=4)
    )


def test_bad_images_are_skipped_and_counted(bad_folder):
  batches, data = train_batches(bad_folder, 10, on_bad_image='skip')
  assert len(batches) == 10
  assert {name[-9:] for name in data.skipped} == {'red/3.jpg'}
  data = pipeline.Decoded(
    sources.get_source(str(bad_folder), 'test'), on_bad_image='skip'
  )
  batches = pipeline.eval_batches(
    data, transforms.EvalImage((8, 8)), batch_size=4
  )
  assert sum(int(b['mask'].sum()) for b in batches) == 14


def test_a_vanished_file_is_masked_or_named(image_folder):
  source = sources.get_source(str(image_folder), 'test')
  (image_folder / 'test' / 'blue' / '2.jpg').unlink()
  data = pipeline.Decoded(source, on_bad_image='skip')
  masks = [data[i]['mask'] for i in range(15)]
  assert sum(masks) == 14
  with pytest.raises(errors.UserError, match=r'no image .*blue/2.jpg: put'):
    pipeline.Decoded(source)[masks.index(False)]


def test_skipping_every_image_raises(image_folder):
  for path in (image_folder / 'train').rglob('*.jpg'):
    path.write_text('no image')
  with pytest.raises(errors.UserError, match='None of 36 images'):
    train_batches(image_folder, 1, on_bad_image='skip')
