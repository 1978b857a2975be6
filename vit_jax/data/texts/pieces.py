"""Tokenisers of SentencePiece: LiT's, SigLIP's and SigLIP 2's.

SigLIP and SigLIP 2 read texts in lower case: big_vision trains and evaluates them so.
It removes punctuation only from the names of classes and their templates.
transformers and open_clip remove it from every text of SigLIP, as here.
"""

from collections.abc import Sequence
import os
import re
import string

import sentencepiece
import tokenizers

from vit_jax.data.texts import token_ids
from vit_jax.runtime import errors

_SPACE = '▁'  # What SentencePiece writes for a space.
_PUNCTUATION = str.maketrans('', '', string.punctuation)
_LOWERCASE = tokenizers.normalizers.Lowercase()


class SentencePieceTokenizer:
  """The pieces of a text, clipped to `max_len` - 1, then `</s>` to the end.

  Case is kept, unless the normaliser inside the model file folds it.
  """

  _end_piece = '</s>'

  def __init__(self, vocab_path: os.PathLike | str, max_len: int):
    """Reads a SentencePiece model."""
    data = token_ids.read(vocab_path)
    self._processor = sentencepiece.SentencePieceProcessor()
    try:
      self._processor.LoadFromSerializedProto(data)
    except RuntimeError as e:
      raise errors.UserError(
        f'{vocab_path} is not a SentencePiece model: {e} Is it a BERT vocabulary'
        f" (tokenizer_name = 'bert')?"
      ) from e
    self._max_len = max_len
    self._end = self._processor.piece_to_id(self._end_piece)
    self.num_ids = self._processor.vocab_size()
    if self._processor.id_to_piece(self._end) != self._end_piece:
      raise errors.UserError(
        f'{vocab_path} has {self.num_ids} pieces, none of which is'
        f' {self._end_piece}, the end of a text. Train it with an eos_id.'
      )

  def __call__(self, texts: Sequence[str]) -> token_ids.TokenIds:
    """Returns the token ids of each text."""
    ids = [row[: self._max_len - 1] for row in self._pieces(texts)]
    return token_ids.clip_and_pad(ids, self._max_len, self._end)

  def _pieces(self, texts: Sequence[str]) -> list[list[int]]:
    return self._processor.encode(list(texts), out_type=int)


class SiglipTokenizer(SentencePieceTokenizer):
  """As `SentencePieceTokenizer`, in lower case and without ASCII punctuation.

  Equal to the `SiglipTokenizer` of transformers, also where that differs from the
  training: punctuation and a space at the start leave a piece for the space, and
  pieces of equal score are chosen as after another word.
  """

  _before = '<unk>'  # The word.

  def _pieces(self, texts: Sequence[str]) -> list[list[int]]:
    start = len(self._processor.encode(self._before, out_type=int))
    texts = [f'{self._before}{_canonical(text)}' for text in texts]
    return [row[start:] for row in super()._pieces(texts)]


def _canonical(text: str) -> str:
  text = f'{_SPACE}{text.replace(_SPACE, " ")}'.lower().translate(_PUNCTUATION)
  return re.sub(r'\s+', ' ', text).strip()


class GemmaTokenizer:
  """The pieces of a text in lower case, clipped to `max_len` - 1, `<eos>`, `<pad>`s.

  Equal to the `Siglip2Tokenizer` of transformers.
  """

  def __init__(self, vocab_path: os.PathLike | str, max_len: int):
    """Reads a `tokenizer.json` or a SentencePiece model."""
    self._max_len = max_len
    self._tokenizer: tokenizers.Tokenizer | sentencepiece.SentencePieceProcessor
    data = token_ids.read(vocab_path)
    try:
      if data.lstrip().startswith(b'{'):
        self._tokenizer = tokenizers.Tokenizer.from_str(data.decode())
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.num_ids = self._tokenizer.get_vocab_size()
        end = self._tokenizer.token_to_id('<eos>')
        padding = self._tokenizer.token_to_id('<pad>')
      else:
        self._tokenizer = sentencepiece.SentencePieceProcessor()
        self._tokenizer.LoadFromSerializedProto(data)
        self.num_ids = self._tokenizer.vocab_size()
        end = self._tokenizer.eos_id()
        padding = self._tokenizer.pad_id()
    except Exception as e:  # Of `tokenizers`, which has no class of its own.
      raise errors.UserError(
        f'{vocab_path} is neither a tokenizer.json nor a SentencePiece model:'
        f' {errors.first_line(e)}'
      ) from e
    if end in (None, -1) or padding in (None, -1):
      raise errors.UserError(
        f"{vocab_path} is not Gemma's vocabulary: it has {self.num_ids} tokens,"
        f' but not both <eos> and <pad>.'
      )
    self._end, self._padding = int(end), int(padding)

  def __call__(self, texts: Sequence[str]) -> token_ids.TokenIds:
    """Returns the token ids of each text."""
    lower = [_LOWERCASE.normalize_str(text) for text in texts]
    if isinstance(self._tokenizer, tokenizers.Tokenizer):
      encodings = self._tokenizer.encode_batch(lower, add_special_tokens=False)
      rows = [encoding.ids for encoding in encodings]
    else:
      rows = self._tokenizer.encode(lower, out_type=int)
    ids = [[*row[: self._max_len - 1], self._end] for row in rows]
    return token_ids.clip_and_pad(ids, self._max_len, self._padding)
