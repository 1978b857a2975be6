"""Images with captions: read, ordered, drawn, batched; bad lines are named."""

import itertools
import json
import unicodedata

import numpy as np
from pictures import COLOURS
import pytest
from runs import tiny_lit

from vit_jax import models
from vit_jax.configs import arguments
from vit_jax.data import batching
from vit_jax.data import captions as captions_lib
from vit_jax.data import pipeline
from vit_jax.data.augmentation import transforms
from vit_jax.data.texts import text
from vit_jax.runtime import errors


def tokenizer(root):
  return text.get_tokenizer('bert', root / 'vocab.txt', 6)


def pairs(root, split, **options):
  return captions_lib.DecodedPairs(
    captions_lib.open_captions(root, split), **options
  )


def train_batches(root, count, *, data=None, seed=0, **kwargs):
  transform = captions_lib.TrainPair(
    transforms.TrainImage((16, 16)), tokenizer(root)
  )
  batches = pipeline.train_batches(
    data or pairs(root, 'train', train=True),
    transform,
    batch_size=8,
    seed=seed,
    **kwargs,
  )
  return list(itertools.islice(batches, count))


def assert_equal(some, others):
  for a, b in zip(some, others, strict=True):
    assert a.keys() == b.keys() == {'image', 'tokens'}
    for name in a:
      np.testing.assert_array_equal(a[name], b[name])


@pytest.mark.parametrize('options', [{'num_threads': 1}, {'num_workers': 1}])
def test_the_same_batches_for_any_threads_and_workers(captions, options):
  want = train_batches(captions, 6)
  assert want[0]['tokens'].shape == (8, 6)
  assert want[0]['tokens'].dtype == np.int32
  assert_equal(train_batches(captions, 6, **options), want)


def test_the_same_batches_for_hosts_and_the_step_is_the_position(captions):
  want = train_batches(captions, 6)
  hosts = [train_batches(captions, 6, shard=(i, 2)) for i in range(2)]
  joined = [
    {k: np.concatenate([a[k], b[k]]) for k in a}
    for a, b in zip(*hosts, strict=True)
  ]
  assert_equal(joined, want)
  assert_equal(train_batches(captions, 3, first_step=3), want[3:])


def test_pairs_stay_together_and_captions_are_drawn(captions):
  tokens = {
    name: [
      tuple(row)
      for row in tokenizer(captions)([f'a {name} picture', f'this is {name}'])
    ]
    for name in COLOURS
  }
  drawn = []
  for batch in train_batches(captions, 9):
    colours = batch['image'].mean((1, 2)).argmax(1)
    for row, colour in zip(batch['tokens'], colours, strict=True):
      name = COLOURS[::-1][colour]  # Decoded as RGB.
      drawn.append(tokens[name].index(tuple(row)))
  assert 0.25 < np.mean(drawn) < 0.75


def test_evaluation_takes_the_first_caption_of_every_image_once(captions):
  transform = captions_lib.EvalPair(
    transforms.LitImage((16, 16)), tokenizer(captions)
  )
  batches = list(
    pipeline.eval_batches(pairs(captions, 'test'), transform, batch_size=4)
  )
  tokens = np.concatenate([b['tokens'][b['mask']] for b in batches])
  want = tokenizer(captions)([f'a {name} picture' for name in COLOURS] * 5)
  np.testing.assert_array_equal(np.sort(tokens, 0), np.sort(want, 0))
  assert batches[0]['image'].dtype == np.uint8
  assert sum(int((~b['mask']).sum()) for b in batches) == 1


def write(root, lines, split='train', suffix='tsv'):
  folder = root / split
  folder.mkdir(exist_ok=True)
  for i in range(10):
    (folder / f'{i}.jpg').write_bytes(b'')
  text = lines if isinstance(lines, str) else '\n'.join(lines)
  (folder / f'captions.{suffix}').write_text(text, encoding='utf-8')


def names(source):
  return [source[i]['name'].rpartition('/')[2] for i in range(len(source))]


def test_tsv_and_jsonl_give_the_same_captions(tmp_path):
  (tmp_path / 'a').mkdir()
  (tmp_path / 'b').mkdir()
  rows = [(f'{i}.jpg', [f'one {i}', 'two, "quoted"']) for i in range(10)]
  write(tmp_path / 'a', [f'{n}\t{c}' for n, cs in rows for c in cs])
  lines = [json.dumps({'image': n, 'captions': cs}) for n, cs in rows[1:]]
  for caption in rows[0][1]:
    lines.append(json.dumps({'image': '0.jpg', 'caption': caption}))
  write(tmp_path / 'b', lines, suffix='jsonl')
  a, b = (captions_lib.open_captions(tmp_path / n, 'train') for n in 'ab')
  assert names(a) == names(b)
  assert [a[i]['captions'] for i in range(10)] == [
    b[i]['captions'] for i in range(10)
  ]
  assert dict(rows)[names(a)[0]] == a[0]['captions']


def test_slices_are_of_a_fixed_random_order(tmp_path):
  lines = [f'{i}.jpg\tcaption {i}' for i in range(10)]
  write(tmp_path, lines)
  whole = names(captions_lib.open_captions(tmp_path, 'train'))
  assert whole != sorted(whole)
  write(tmp_path, lines[::-1])
  parts = [
    names(captions_lib.open_captions(tmp_path, split))
    for split in ('train[:90%]', 'train[90%:]')
  ]
  assert [len(part) for part in parts] == [9, 1]
  assert parts[0] + parts[1] == whole


def test_validation_stands_in_for_test(tmp_path):
  write(tmp_path, ['0.jpg\tx', '1.jpg\ty'])
  write(tmp_path, ['2.jpg\tz'], split='val')
  for split in ('test', 'val'):
    assert names(captions_lib.open_captions(tmp_path, split)) == ['2.jpg']


def test_line_ends_blank_lines_and_other_folders(tmp_path):
  (tmp_path / 'photos').mkdir()
  (tmp_path / 'photos' / 'x.WEBP').write_bytes(b'')
  write(tmp_path, '\ufeff../photos/x.WEBP\t a cat \r\n\r\n1.jpg\tnaïve\r\n')
  source = captions_lib.open_captions(tmp_path, 'train')
  found = dict(zip(names(source), (s['captions'] for s in source), strict=True))
  assert found == {'x.WEBP': ['a cat'], '1.jpg': ['naïve']}


@pytest.mark.parametrize('on_disk', ['NFC', 'NFD'])
def test_image_names_may_be_in_another_unicode_form(tmp_path, on_disk):
  forms = [unicodedata.normalize(form, 'café.jpg') for form in ('NFC', 'NFD')]
  write(tmp_path, [f'{name}\tcaption {i}' for i, name in enumerate(forms)])
  name = unicodedata.normalize(on_disk, 'café.jpg')
  (tmp_path / 'train' / name).write_bytes(b'')
  source = captions_lib.open_captions(tmp_path, 'train')
  assert names(source) == [name]
  assert source[0]['captions'] == ['caption 0', 'caption 1']


@pytest.mark.parametrize(
  'suffix, line, message',
  [
    ('tsv', '1.jpg a cat', r"captions.tsv, line 2: '1.jpg a cat' has no TAB"),
    ('tsv', '1.jpg\t ', 'line 2: the caption of 1.jpg is empty'),
    ('tsv', 'no.jpg\tcat', 'line 2: there is no image .*train/no.jpg'),
    ('tsv', 'a.jxl\tcat', r'line 2: .*a.jxl is not an image: names.*\.webp'),
    ('jsonl', '{"image": "1.jpg"', 'captions.jsonl, line 2: not JSON'),
    ('jsonl', '{"image": "1.jpg"}', 'line 2: not of the form {"image"'),
    ('jsonl', '{"image": "1.jpg", "captions": []}', 'line 2: not of the form'),
    ('jsonl', '["1.jpg", "cat"]', 'line 2: not of the form'),
    ('jsonl', '{"image": 1, "caption": "cat"}', 'line 2: not of the form'),
    ('jsonl', '{"image": "1.jpg", "caption": ""}', 'of 1.jpg is empty'),
    ('jsonl', '[' * 200_000, 'captions.jsonl, line 2: not JSON'),
    ('jsonl', r'{"image": "1.jpg", "caption": "a\ud83d"}', 'line 2: .*utf-8'),
  ],
)
def test_a_bad_line_is_named(tmp_path, suffix, line, message):
  good = {'tsv': '0.jpg\tx', 'jsonl': '{"image": "0.jpg", "caption": "x"}'}
  write(tmp_path, [good[suffix], line], suffix=suffix)
  with pytest.raises(errors.UserError, match=message):
    captions_lib.open_captions(tmp_path, 'train')


def test_missing_captions_are_named(tmp_path):
  def refused(message, split='train', root=tmp_path):
    with pytest.raises(errors.UserError, match=message):
      captions_lib.open_captions(root, split)

  refused('There is no folder .* here', root=tmp_path / 'absent')
  refused('has no captions. It must have train/captions.tsv')
  write(tmp_path, ['0.jpg\tx'])
  refused(r"Split 'test' of .* There are train \(1 images\)", split='test')
  (tmp_path / 'test').mkdir()
  refused('test has no captions.tsv or captions.jsonl')
  write(tmp_path, '\n', split='test')
  refused("Split 'test' of .* is empty", split='test')
  write(tmp_path, ['{}'], suffix='jsonl')
  refused('has both captions.tsv and captions.jsonl')


def test_bad_images_are_named_or_skipped(captions, tmp_path):
  write(tmp_path, ['0.jpg\tx', f'{captions}/train/red1.png\tthis is red'])
  (tmp_path / 'vocab.txt').write_text('[PAD]\n[CLS]\nthis\nis\nred\n')
  with pytest.raises(errors.UserError, match=r'0.jpg cannot be decoded'):
    train_batches(tmp_path, 2)
  data = pairs(tmp_path, 'train', on_bad_image='skip', train=True)
  batch = train_batches(tmp_path, 1, data=data)[0]
  assert batch['tokens'].tolist() == [[1, 2, 3, 4, 0, 0]] * 8
  data = pairs(tmp_path, 'train', on_bad_image='skip')
  transform = captions_lib.EvalPair(
    transforms.LitImage((16, 16)), tokenizer(tmp_path)
  )
  batches = list(pipeline.eval_batches(data, transform, batch_size=2))
  assert [b['mask'].sum() for b in batches] == [1]


def test_images_are_resized_as_lit_does():
  rng = np.random.RandomState(0)
  image = rng.randint(0, 256, (30, 45, 3), np.uint8)
  got = transforms.lit_image(image, (8, 8))
  exact = transforms.resize(image, (8, 8))
  np.testing.assert_array_equal(got, np.floor(exact))
  # The official example: borders are cropped, not squeezed.
  for shape in ((16, 10), (10, 16)):
    white = np.zeros((*shape, 3), np.uint8)
    white[2:-2] = 255
    if shape[1] == 16:
      white = np.zeros((*shape, 3), np.uint8)
      white[:, 2:-2] = 255
    assert transforms.lit_image(white, (4, 4)).min() < 255
    assert transforms.lit_image(white, (4, 4), crop=True).min() == 255
  assert transforms.lit_image(image, (8, 8), crop=True).shape == (8, 8, 3)


def test_the_config_reaches_the_data(captions):
  config = tiny_lit(captions)
  data = batching.of_config(config)
  assert data.image_shape == (16, 16, 3)
  assert data.class_names == []
  model = models.from_config(arguments.of_model(config))
  assert model.vocab_size == 40
