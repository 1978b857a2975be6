"""Texts to token ids [B, L], by the tokeniser of a model."""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import os
import pathlib
import re
from typing import Any
import unicodedata

import tokenizers

from vit_jax.configs.models import ModelConfig
from vit_jax.data.texts import byte_pairs
from vit_jax.data.texts import pieces
from vit_jax.data.texts import token_ids
from vit_jax.runtime import errors

_CLS, _UNKNOWN = '[CLS]', '[UNK]'

# Longer words are unknown. TensorFlow Text counts bytes in all alphabets.
_MAX_WORD = 100

# Unicode's default ignorable characters: soft hyphens, joiners, directions.
_IGNORABLE = re.compile(
  '[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]'
)


class BertTokenizer:
  """`[CLS]`, then the word pieces of a text, clipped or padded with 0.

  Equal to `tensorflow_text.BertTokenizer(lower_case=True)`: NFKC case folding,
  accents stripped, punctuation and CJK characters split off. An unknown word is
  `[UNK]`, or one id past a vocabulary without it.
  """

  def __init__(self, vocab_path: os.PathLike | str, max_len: int):
    """Reads a vocabulary of one token a line."""
    try:
      lines = token_ids.read(vocab_path).decode('utf-8-sig').split('\n')
    except UnicodeDecodeError as e:
      raise errors.UserError(
        f'{vocab_path} is not a BERT vocabulary: it is not a text file. Is it a'
        f" SentencePiece model (tokenizer_name = 'sentencepiece')?"
      ) from e
    if not lines[-1]:  # After the last line break.
      lines.pop()
    ids = {line.rstrip('\r'): i for i, line in enumerate(lines)}
    if _CLS not in ids:
      raise errors.UserError(
        f'{vocab_path} is not a BERT vocabulary: none of its {len(lines)} lines is'
        f' {_CLS}. It needs one token a line, as the vocab.txt of BERT has.'
      )
    self._max_len, self._cls = max_len, ids[_CLS]
    ids.setdefault(_UNKNOWN, len(lines))
    self.num_ids = max(ids.values()) + 1  # Rows that an embedding table needs.
    self._tokenizer = tokenizers.Tokenizer(
      tokenizers.models.WordPiece(
        ids, unk_token=_UNKNOWN, max_input_chars_per_word=_MAX_WORD
      )
    )
    self._tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(
      clean_text=False,
      handle_chinese_chars=True,
      strip_accents=False,
      lowercase=False,
    )
    self._tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()

  def __call__(self, texts: Sequence[str]) -> token_ids.TokenIds:
    """Returns the token ids of each text."""
    encodings = self._tokenizer.encode_batch([_fold(text) for text in texts])
    ids = [[self._cls, *encoding.ids] for encoding in encodings]
    return token_ids.clip_and_pad(ids, self._max_len, 0)


def _fold(text: str) -> str:
  """Folds case and strips accents as TensorFlow does; the library differs."""
  text = unicodedata.normalize('NFD', text).casefold()
  text = unicodedata.normalize('NFKC', text).casefold()
  text = unicodedata.normalize('NFKC', _IGNORABLE.sub('', text))
  return ''.join(
    ' ' if category in ('Cc', 'Cf') else character
    for character in unicodedata.normalize('NFD', text)
    if (category := unicodedata.category(character)) != 'Mn'
  )


@dataclasses.dataclass(frozen=True)
class Kind:
  """A kind of tokeniser.

  Attributes:
    make: makes one from a file and the length of its rows.
    files: names of its files in folders of other libraries, the best first.
    saved: name of its file in an artifact and in exported folders.
    also_saved: replaces `saved` for files with the same suffix; empty for none.
    content: returns the bytes of that file, from any file that `make` reads.
  """

  make: Callable[[os.PathLike | str, int], token_ids.Tokenizer]
  files: tuple[str, ...]
  saved: str
  content: Callable[[os.PathLike | str], bytes] = token_ids.read
  also_saved: str = ''

  def saved_as(self, path: os.PathLike | str) -> str:
    """Returns the name of a vocabulary in an artifact."""
    also = self.also_saved
    if also and pathlib.PurePath(path).suffix == pathlib.PurePath(also).suffix:
      return also
    return self.saved


_BYTE_PAIRS: dict[str, Any] = {
  'files': ('tokenizer.json', 'vocab.json', 'bpe_simple_vocab_16e6.txt.gz'),
  'saved': 'tokenizer.json',
  'content': byte_pairs.as_json,
}

TOKENIZERS = {
  'bert': Kind(BertTokenizer, ('vocab.txt',), 'vocabulary.txt'),
  'sentencepiece': Kind(
    pieces.SentencePieceTokenizer, ('tokenizer.model',), 'vocabulary.model'
  ),
  'siglip': Kind(
    pieces.SiglipTokenizer,
    ('spiece.model', 'sentencepiece.model'),
    'spiece.model',
  ),
  'gemma': Kind(
    pieces.GemmaTokenizer,
    ('tokenizer.json', 'tokenizer.model'),
    'tokenizer.json',
    also_saved='tokenizer.model',
  ),
  'clip': Kind(byte_pairs.BytePairTokenizer, **_BYTE_PAIRS),
  'open_clip': Kind(
    functools.partial(byte_pairs.BytePairTokenizer, cleans=True), **_BYTE_PAIRS
  ),
}


def find(name: str, folder: pathlib.Path) -> str | None:
  """Returns the path of the vocabulary in a folder of another library."""
  paths = [folder / file for file in TOKENIZERS[name].files]
  return next((str(path) for path in paths if path.is_file()), None)


def of_model(
  pp: ModelConfig,
  text: ModelConfig,
  vocab_size: int,
  vocab_path: os.PathLike | str,
) -> token_ids.Tokenizer:
  """Returns the tokeniser of a model, checked against its text tower.

  Args:
    pp: `tokenizer_name` and `max_len`, as in the config of the model.
    text: arguments of the text tower.
    vocab_size: rows of its embedding table.
    vocab_path: file of the vocabulary.

  Raises:
    errors.UserError: if the file is of another kind or another vocabulary.
  """
  tokenizer = get_tokenizer(pp['tokenizer_name'], vocab_path, pp['max_len'])
  check_vocabulary(tokenizer, vocab_size, vocab_path)
  want, have = text.get('end'), getattr(tokenizer, 'end', None)
  if None not in (want, have) and want != have:
    raise errors.UserError(
      f'{vocab_path} ends texts with the id {have}, but the text tower reads'
      f' them at {want}. Use the vocabulary of the weights.'
    )
  return tokenizer


def get_tokenizer(
  name: str, vocab_path: os.PathLike | str, max_len: int
) -> token_ids.Tokenizer:
  """Returns a tokeniser from texts to int32 ids [B, max_len]; it can be pickled.

  `name` is one of `TOKENIZERS`: 'bert' with a text file as vocabulary,
  'sentencepiece' and 'siglip' with a SentencePiece model, 'clip', 'open_clip' and
  'gemma' with a `tokenizer.json`. Raises `errors.UserError` if either is wrong.
  """
  if name not in TOKENIZERS:
    raise errors.UserError(
      f'There is no tokeniser {name!r}, only {" and ".join(TOKENIZERS)}.'
    )
  return TOKENIZERS[name].make(vocab_path, max_len)


def check_vocabulary(
  tokenizer: token_ids.Tokenizer, vocab_size: int, vocab_path: os.PathLike | str
) -> None:
  """Raises `errors.UserError` unless a table of `vocab_size` rows has every id.

  JAX would silently use the last row for an id past the table.
  """
  if tokenizer.num_ids > vocab_size:
    raise errors.UserError(
      f'{vocab_path} gives token ids up to {tokenizer.num_ids - 1}, but the text'
      f' tower has embeddings for {vocab_size} ids. Use the vocabulary of the'
      f' weights, or a text tower with a larger vocab_size.'
    )
