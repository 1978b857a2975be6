"""CLIP's tokeniser (arXiv:2103.00020, Sec. 2.4): lower-cased byte pairs.

It splits a text into words, digits and runs of other characters, each of them
into bytes, and joins pairs of these in the order of the merges. The last part of
a word is marked by `</w>`.
"""

from collections.abc import Sequence
import functools
import html
import json
import os
import re
from typing import Any
import unicodedata
import zlib

import tokenizers

from vit_jax.data.texts import token_ids
from vit_jax.runtime import errors
from vit_jax.runtime import storage

_END_OF_WORD = '</w>'

# Start and end of a text, as transformers and as open_clip call them.
_SPECIAL = (
  ('<|startoftext|>', '<|endoftext|>'),
  ('<start_of_text>', '<end_of_text>'),
)

_CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d"
_WORDS = r'[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+'

# The published file of merges has more than CLIP uses.
_MAX_MERGES = 49_152 - 256 - 2

# What ftfy, with which open_clip cleans texts, changes most often.
_COMPATIBLE = (
  *'\u3000ĲĳŉǱǲǳǄǅǆǇǈǉǊǋǌﬀﬁﬂﬃﬄﬅﬆ',
  *map(chr, range(0xFF01, 0xFFF0)),
)
_PLAIN = str.maketrans(
  {c: unicodedata.normalize('NFKC', c) for c in _COMPATIBLE}
)
_QUOTES = str.maketrans(
  {
    **dict.fromkeys('\u02bc\u2018\u2019\u201a\u201b', "'"),
    **dict.fromkeys('\u201c\u201d\u201e\u201f', '"'),
  }
)
_CONTROLS = re.compile(
  '[\x00-\x08\x0b\x0e-\x1f\x7f\u206a-\u206f\ufeff\ufff9-\ufffc]'
)


class BytePairTokenizer:
  """Start, the pieces of a text, end; cut to `max_len` or padded.

  Equal to the `CLIPTokenizer` of transformers, which pads with the end. With
  `cleans`, equal to the `SimpleTokenizer` of open_clip, which pads with 0 and
  cleans texts first, except that text in a wrong encoding is not repaired.
  """

  def __init__(
    self, vocab_path: os.PathLike | str, max_len: int, *, cleans: bool = False
  ):
    """Reads a vocabulary, see `read`."""
    self._tokenizer = read(vocab_path)
    if cleans:
      self._tokenizer = _renamed(self._tokenizer)
    ids = self._tokenizer.get_vocab(with_added_tokens=True)
    pair = next((p for p in _SPECIAL if set(p) <= set(ids)), None)
    if pair is None:
      raise errors.UserError(
        f'{vocab_path} is not the vocabulary of a CLIP: it has {len(ids)} tokens,'
        f' none of which is {_SPECIAL[0][1]}, the end of a text.'
      )
    self._start, self.end = (ids[name] for name in pair)
    self._max_len, self._cleans = max_len, cleans
    self.num_ids = max(ids.values()) + 1

  def __call__(self, texts: Sequence[str]) -> token_ids.TokenIds:
    """Returns the token ids of each text."""
    if self._cleans:
      texts = [_clean(text) for text in texts]
    encodings = self._tokenizer.encode_batch(
      list(texts), add_special_tokens=False
    )
    most = self._max_len - 2
    rows = [[self._start, *e.ids[:most], self.end] for e in encodings]
    padding = 0 if self._cleans else self.end
    return token_ids.clip_and_pad(rows, self._max_len, padding)


def _clean(text: str) -> str:
  text = html.unescape(html.unescape(text))
  text = text.translate(_PLAIN).translate(_QUOTES)
  text = _CONTROLS.sub('', unicodedata.normalize('NFC', text))
  return ' '.join(text.split()).lower()


def read(path: os.PathLike | str) -> tokenizers.Tokenizer:
  """Reads a vocabulary of byte pairs.

  Args:
    path: `tokenizer.json`; `vocab.json` with `merges.txt` beside it; or merges
      alone, one a line, gzipped or not, which give the ids as CLIP numbers them.
  """
  data = token_ids.read(path)
  try:
    if data.startswith(b'\x1f\x8b'):
      data = zlib.decompress(data, wbits=31)
    text = data.decode('utf-8-sig')
    if not text.lstrip().startswith('{'):
      merges = _merges(text)[:_MAX_MERGES]
      return _made(_numbered(merges), merges)
    content = json.loads(text)
    if _is_whole(content):
      tokenizer = tokenizers.Tokenizer.from_str(text)
      tokenizer.no_truncation()
      tokenizer.no_padding()
      return tokenizer
    beside = storage.local_path(path).with_name('merges.txt')
    return _made(content, _merges(token_ids.read(beside).decode()))
  except errors.UserError:
    raise
  except Exception as e:  # tokenizers raises no class of its own.
    raise errors.UserError(
      f'{path} is not a vocabulary of byte pairs: {errors.first_line(e)} It'
      f' must be a tokenizer.json, a vocab.json beside its merges.txt, or merges.'
    ) from e


def _renamed(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
  """Returns a tokeniser that finds start and end by open_clip's names."""
  text = tokenizer.to_str()
  for old, new in zip(*_SPECIAL, strict=True):
    for written in (old, re.escape(old)):
      text = text.replace(json.dumps(written)[1:-1], new)
  return tokenizers.Tokenizer.from_str(text)


def as_json(path: os.PathLike | str) -> bytes:
  """Returns a vocabulary as a `tokenizer.json`."""
  data = token_ids.read(path)
  if data.lstrip().startswith(b'{') and _is_whole(json.loads(data)):
    return data
  return read(path).to_str(pretty=True).encode()


def _is_whole(content: Any) -> bool:
  """Whether a JSON is a `tokenizer.json`; a `vocab.json` has a token 'model'."""
  return isinstance(content.get('model'), dict)


def _merges(text: str) -> list[tuple[str, str]]:
  lines = text.split('\n')
  pairs = [line.split() for line in lines if not line.startswith('#version')]
  if lines and lines[0].startswith('"bpe_simple_vocab'):
    pairs = pairs[1:]
  return [(first, second) for first, second in filter(None, pairs)]


def _numbered(merges: Sequence[tuple[str, str]]) -> dict[str, int]:
  """Returns the ids of bytes, of last bytes, of merges, of start and end."""
  characters = list(_byte_characters())
  pieces = [*characters, *(c + _END_OF_WORD for c in characters)]
  pieces += [first + second for first, second in merges]
  return {piece: i for i, piece in enumerate([*pieces, *_SPECIAL[0]])}


@functools.cache
def _byte_characters() -> tuple[str, ...]:
  """Returns the characters that stand for bytes, those that print first."""
  printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
  others = range(256, 256 + 256 - len(printed))
  return tuple(map(chr, [*printed, *others]))


def _made(ids: dict[str, int], merges: Any) -> tokenizers.Tokenizer:
  """Returns the tokeniser that a `tokenizer.json` of CLIP describes."""
  start, end = next((p for p in _SPECIAL if set(p) <= set(ids)), _SPECIAL[0])
  special = '|'.join(re.escape(token) for token in (start, end))
  words = tokenizers.Regex(f'{special}|{_CONTRACTIONS}|{_WORDS}')
  made = tokenizers.Tokenizer(
    tokenizers.models.BPE(
      ids,
      merges,
      unk_token=end,
      continuing_subword_prefix='',
      end_of_word_suffix=_END_OF_WORD,
      fuse_unk=False,
    )
  )
  made.normalizer = tokenizers.normalizers.Sequence(
    [
      tokenizers.normalizers.NFC(),
      tokenizers.normalizers.Replace(tokenizers.Regex(r'\s+'), ' '),
      tokenizers.normalizers.Lowercase(),
    ]
  )
  made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
    [
      tokenizers.pre_tokenizers.Split(words, 'removed', invert=True),
      tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False),
    ]
  )
  made.decoder = tokenizers.decoders.ByteLevel()
  made.post_processor = tokenizers.processors.RobertaProcessing(
    (end, ids.get(end, 0)),
    (start, ids.get(start, 0)),
    trim_offsets=False,
    add_prefix_space=False,
  )
  made.add_special_tokens([token for token in (start, end) if token in ids])
  return made
