"""Images and their captions, in folders `{split}/captions.tsv` or `.jsonl`."""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import json
import os
import pathlib
from typing import Any

import grain
import numpy as np

from vit_jax.data import folder
from vit_jax.data import image_files
from vit_jax.data import pipeline
from vit_jax.data import splits as splits_lib
from vit_jax.data import text
from vit_jax.data import transforms
from vit_jax.runtime import errors

# The captions of an image, by its path.
Captions = dict[str, list[str]]


class CaptionSource:
  """Image files and the captions of each."""

  image_shape = None
  class_names = ()

  def __init__(self, pairs: Sequence[tuple[str, Sequence[str]]]):
    self._pairs = pairs

  def __len__(self) -> int:
    return len(self._pairs)

  def __getitem__(self, index: int) -> dict[str, Any]:
    path, captions = self._pairs[index]
    return {
      'image': image_files.read_bytes(path),
      'captions': captions,
      'name': path,
    }


class DecodedPairs(pipeline.Decoded):
  """A source of captions with its images decoded."""

  def _target(self, example: dict[str, Any] | None) -> dict[str, Any]:
    return {'captions': example['captions'] if example else ['']}


@dataclasses.dataclass(frozen=True)
class TrainPair(grain.transforms.RandomMap):
  """Transforms the image; makes `tokens` int32 [L] of one caption, at random."""

  image: transforms.TrainImage
  tokenizer: text.Tokenizer

  def random_map(self, element: dict, rng: np.random.Generator) -> dict:
    captions = element['captions']
    caption = captions[rng.integers(len(captions))]
    pair = _with_tokens(element, caption, self.tokenizer)
    return self.image.random_map(pair, rng)


@dataclasses.dataclass(frozen=True)
class EvalPair(grain.transforms.Map):
  """Resizes the image as LiT does; makes `tokens` of the first caption."""

  size: tuple[int, int]
  tokenizer: text.Tokenizer

  def map(self, element: dict) -> dict:
    pair = _with_tokens(element, element['captions'][0], self.tokenizer)
    return {**pair, 'image': transforms.lit_image(pair['image'], self.size)}


def _with_tokens(
  element: dict, caption: str, tokenizer: text.Tokenizer
) -> dict:
  element = {k: x for k, x in element.items() if k != 'captions'}
  return {**element, 'tokens': tokenizer([caption])[0]}


def open_captions(root: pathlib.Path, split: str) -> CaptionSource:
  """Reads the captions of a split; images stay where they are.

  Args:
    root: folder of `{train,test}/`; 'val' and like stand in for 'test'. In each
      are `captions.tsv` (image, TAB, caption; an image may have many lines) or
      `captions.jsonl` ({"image": ..., "caption": ...}, or "captions": [...]).
      Images are named from there on.
    split: in TFDS notation, such as 'train[:98%]'. The order is fixed, by a
      hash of the image's name.

  Raises:
    errors.UserError: if there is no such split, a line cannot be read, or an
      image is not there.
  """
  if not root.is_dir():
    raise errors.UserError(
      f'{str(root)!r} is no folder here. Training on captions needs a folder'
      f' with train/captions.tsv and test/captions.tsv.'
    )
  files = {
    entry.name: file
    for entry in sorted(root.iterdir())
    if entry.is_dir() and (file := _caption_file(entry))
  }
  if not files:
    raise errors.UserError(
      f'{root} has no captions. It must have train/captions.tsv and'
      f' test/captions.tsv, or .jsonl, beside the images they name.'
    )
  files, split = folder.with_test(files, split)
  captions = {name: _read(file) for name, file in files.items()}
  sizes = {name: len(x) for name, x in captions.items()}
  pairs = [
    pair
    for name, start, end in splits_lib.parse_split(split, sizes, str(root))
    for pair in _ordered(captions[name], root)[start:end]
  ]
  return CaptionSource(pairs)


def _ordered(
  captions: Captions, root: pathlib.Path
) -> list[tuple[str, list[str]]]:
  return sorted(
    captions.items(), key=lambda pair: folder.name_hash(pair[0], root)
  )


def _caption_file(directory: pathlib.Path) -> pathlib.Path | None:
  found = [
    directory / f'captions{suffix}'
    for suffix in _PARSERS
    if (directory / f'captions{suffix}').is_file()
  ]
  if len(found) == 1:
    return found[0]
  if found:
    raise errors.UserError(
      f'{directory} has both {found[0].name} and {found[1].name}. Keep one.'
    )
  if directory.name in ('train', 'test', *folder.VALIDATION_NAMES):
    raise errors.UserError(
      f'{directory} has no captions.tsv or captions.jsonl, which names its'
      f' images and what they show.'
    )
  return None


def _read(path: pathlib.Path) -> Captions:
  """Returns the captions of a file by the paths of their images."""
  try:
    lines = path.read_text(encoding='utf-8-sig').split('\n')
  except (OSError, UnicodeDecodeError) as e:
    raise errors.UserError(f'{path} cannot be read: {e}.') from e
  captions: Captions = {}
  for number, line in enumerate(lines, 1):
    if not line.strip():
      continue
    try:
      for name, caption in _PARSERS[path.suffix](line):
        image = os.path.join(path.parent, name)
        if image not in captions:
          _check_image(image)
        if not caption.strip():
          raise ValueError(f'the caption of {name} is empty')
        captions.setdefault(image, []).append(caption.strip())
    except ValueError as e:
      raise errors.UserError(f'{path}, line {number}: {e}.') from e
  return captions


def _check_image(path: str) -> None:
  if not image_files.is_read(path):
    suffixes = ', '.join(image_files.SUFFIXES)
    raise ValueError(
      f'{path} is no image by its name, which ends in {suffixes}'
    )
  if not os.path.isfile(path):
    raise ValueError(f'there is no image {path}')


def _parse_tsv(line: str) -> Iterator[tuple[str, str]]:
  name, tab, caption = line.partition('\t')
  if not tab:
    raise ValueError(f'{line.strip()!r} has no TAB between image and caption')
  yield name.strip(), caption


def _parse_jsonl(line: str) -> Iterator[tuple[str, str]]:
  try:
    row = json.loads(line)
  except ValueError as e:
    raise ValueError(f'no JSON: {e}') from e
  row = row if isinstance(row, dict) else {}
  captions = row.get('captions', [row.get('caption')])
  if not isinstance(captions, list) or not captions:
    captions = [None]
  if not all(isinstance(x, str) for x in (row.get('image'), *captions)):
    raise ValueError(
      'not of the form {"image": "a.jpg", "caption": "..."} or {"image":'
      ' "a.jpg", "captions": ["...", "..."]}'
    )
  for caption in captions:
    yield row['image'], caption


_PARSERS: dict[str, Callable[[str], Iterator[tuple[str, str]]]] = {
  '.tsv': _parse_tsv,
  '.jsonl': _parse_jsonl,
}
