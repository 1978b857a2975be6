"""Images and their captions, in folders `{split}/captions.tsv` or `.jsonl`."""

from collections.abc import Callable, Iterator
import dataclasses
import json
import os
import pathlib
from typing import Any
import unicodedata

import grain
import numpy as np

from vit_jax.data import folder
from vit_jax.data import image_files
from vit_jax.data import pipeline
from vit_jax.data import splits as splits_lib
from vit_jax.data.augmentation import transforms
from vit_jax.data.texts import token_ids
from vit_jax.runtime import errors

Captions = dict[str, list[str]]  # By the path of the image.


class DecodedPairs(pipeline.Decoded):
  """Decoded images with their captions."""

  def _target(self, example: dict[str, Any] | None) -> dict[str, Any]:
    return {'captions': example['captions'] if example else ['']}


@dataclasses.dataclass(frozen=True)
class TrainPair(grain.transforms.RandomMap):
  """Transforms the image; adds `tokens` int32 [L] of a random caption."""

  image: transforms.TrainImage
  tokenizer: token_ids.Tokenizer

  def random_map(self, element: dict, rng: np.random.Generator) -> dict:
    captions = element['captions']
    caption = captions[rng.integers(len(captions))]
    pair = _with_tokens(element, caption, self.tokenizer)
    return self.image.random_map(pair, rng)


@dataclasses.dataclass(frozen=True)
class EvalPair(grain.transforms.Map):
  """Resizes the image; adds `tokens` int32 [L] of its first caption."""

  image: transforms.LitImage
  tokenizer: token_ids.Tokenizer

  def map(self, element: dict) -> dict:
    pair = _with_tokens(element, element['captions'][0], self.tokenizer)
    return self.image.map(pair)


def _with_tokens(
  element: dict, caption: str, tokenizer: token_ids.Tokenizer
) -> dict:
  element = {k: x for k, x in element.items() if k != 'captions'}
  return {**element, 'tokens': tokenizer([caption])[0]}


def open_captions(root: pathlib.Path, split: str) -> folder.FileSource:
  """Reads the captions of a split; images are read later.

  Args:
    root: folder of `{train,test}/`; 'val' and similar names stand in for 'test'.
      Each has `captions.tsv` (image, TAB, caption; an image may have many lines)
      or `captions.jsonl` ({"image": ..., "caption": ...}, or "captions": [...]).
      Image names are relative to that file.
    split: TFDS notation, such as 'train[:98%]'. A hash of the image's name fixes
      the order.
  """
  if not root.is_dir():
    raise errors.UserError(
      f'There is no folder {str(root)!r} here. Training on captions needs a folder'
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
  parts = splits_lib.parse_split(split, sizes, str(root))
  order = lambda pair: folder.name_hash(pair[0], root)
  pairs = [
    pair
    for name, start, end in parts
    for pair in sorted(captions[name].items(), key=order)[start:end]
  ]
  return folder.FileSource(pairs, target='captions', ranges=parts)


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
  if directory.name in folder.SPLIT_NAMES:
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
  images: dict[str, str] = {}
  for number, line in enumerate(lines, 1):
    if not line.strip():
      continue
    try:
      for name, caption in _PARSERS[path.suffix](line):
        if name not in images:
          images[name] = _find_image(path.parent, name)
        if not caption.strip():
          raise ValueError(f'the caption of {name} is empty')
        caption.encode()  # Raises a ValueError at half a character.
        captions.setdefault(images[name], []).append(caption.strip())
    except ValueError as e:
      raise errors.UserError(f'{path}, line {number}: {e}.') from e
  return captions


def _find_image(directory: pathlib.Path, name: str) -> str:
  """Returns the path of an image, whose name may be in another Unicode form."""
  path = os.path.join(directory, name)
  if not image_files.is_read(name):
    suffixes = ', '.join(image_files.SUFFIXES)
    raise ValueError(f'{path} is not an image: names must end in {suffixes}')
  for form in ('NFC', 'NFD'):
    if not os.path.isfile(path):
      path = os.path.join(directory, unicodedata.normalize(form, name))
  if not os.path.isfile(path):
    raise ValueError(f'there is no image {os.path.join(directory, name)}')
  return path


def _parse_tsv(line: str) -> Iterator[tuple[str, str]]:
  name, tab, caption = line.partition('\t')
  if not tab:
    raise ValueError(f'{line.strip()!r} has no TAB between image and caption')
  yield name.strip(), caption


def _parse_jsonl(line: str) -> Iterator[tuple[str, str]]:
  try:
    row = json.loads(line)
  except (ValueError, RecursionError) as e:
    raise ValueError(f'not JSON: {e}') from e
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
