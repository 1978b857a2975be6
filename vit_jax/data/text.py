"""Texts to token ids [B, L], as the official LiT preprocessing makes them."""

from collections.abc import Callable, Sequence
import os
import re
import unicodedata

from jaxtyping import Int32
import numpy as np
import sentencepiece
import tokenizers

from vit_jax.runtime import errors
from vit_jax.runtime import storage

TokenIds = Int32[np.ndarray, 'B L']

_CLS, _UNKNOWN, _END = '[CLS]', '[UNK]', '</s>'

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
      lines = _read(vocab_path).decode('utf-8-sig').split('\n')
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

  def __call__(self, texts: Sequence[str]) -> TokenIds:
    """Returns the token ids of each text."""
    encodings = self._tokenizer.encode_batch([_fold(text) for text in texts])
    ids = [[self._cls, *encoding.ids] for encoding in encodings]
    return _clip_and_pad(ids, self._max_len, 0)


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


class SentencePieceTokenizer:
  """The pieces of a text, clipped to `max_len` - 1, then `</s>` to the end.

  Case is kept, unless the normaliser inside the model file folds it.
  """

  def __init__(self, vocab_path: os.PathLike | str, max_len: int):
    """Reads a SentencePiece model."""
    data = _read(vocab_path)
    self._processor = sentencepiece.SentencePieceProcessor()
    try:
      self._processor.LoadFromSerializedProto(data)
    except RuntimeError as e:
      raise errors.UserError(
        f'{vocab_path} is not a SentencePiece model: {e} Is it a BERT vocabulary'
        f" (tokenizer_name = 'bert')?"
      ) from e
    self._max_len = max_len
    self._end = self._processor.piece_to_id(_END)
    self.num_ids = self._processor.vocab_size()
    if self._processor.id_to_piece(self._end) != _END:
      raise errors.UserError(
        f'{vocab_path} has {self.num_ids} pieces, none of which is {_END}, the'
        f' end of a text. Train it with an eos_id.'
      )

  def __call__(self, texts: Sequence[str]) -> TokenIds:
    """Returns the token ids of each text."""
    pieces = self._processor.encode(list(texts), out_type=int)
    ids = [row[: self._max_len - 1] for row in pieces]
    return _clip_and_pad(ids, self._max_len, self._end)


Tokenizer = BertTokenizer | SentencePieceTokenizer

TOKENIZERS: dict[str, Callable[[os.PathLike | str, int], Tokenizer]] = {
  'bert': BertTokenizer,
  'sentencepiece': SentencePieceTokenizer,
}


def get_tokenizer(
  name: str, vocab_path: os.PathLike | str, max_len: int
) -> Tokenizer:
  """Returns a tokeniser from texts to int32 ids [B, max_len]; it can be pickled.

  `name` is 'bert' with a text file as vocabulary, or 'sentencepiece' with a
  SentencePiece model. Raises `errors.UserError` if either is wrong.
  """
  if name not in TOKENIZERS:
    raise errors.UserError(
      f'There is no tokeniser {name!r}, only {" and ".join(TOKENIZERS)}.'
    )
  return TOKENIZERS[name](vocab_path, max_len)


def check_vocabulary(
  tokenizer: Tokenizer, vocab_size: int, vocab_path: os.PathLike | str
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


def _read(path: os.PathLike | str) -> bytes:
  try:
    data = storage.local_path(path).read_bytes()
  except OSError as e:
    raise errors.UserError(
      f'The vocabulary {str(path)!r} cannot be read: {e.strerror}.'
    ) from e
  if not data:
    raise errors.UserError(f'The vocabulary {path} is an empty file.')
  return data


def _clip_and_pad(
  rows: Sequence[Sequence[int]], length: int, padding: int
) -> TokenIds:
  ids = np.full((len(rows), length), padding, np.int32)
  for target, row in zip(ids, rows, strict=True):
    target[: len(row)] = row[:length]
  return ids
