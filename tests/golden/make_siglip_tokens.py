"""Makes `siglip_tokens`, with transformers: two small vocabularies and ids.

The texts are those of `clip_tokens`.
"""

import json
import pathlib
import tempfile

import sentencepiece
import transformers
from transformers.models.siglip2 import tokenization_siglip2
from transformers.tokenization_utils_base import generate_merges

GOLDEN = pathlib.Path(__file__).parent
FOLDER = GOLDEN / 'siglip_tokens'
LENGTH = 16
NORMALIZER = {'normalization_rule_name': 'identity'}  # Others are large.
PIECES = {  # As those of SigLIP.
  'model_type': 'unigram',
  'vocab_size': 300,
  'pad_id': 0,
  'eos_id': 1,
  'unk_id': 2,
  'bos_id': -1,
}
BYTES = {  # As those of Gemma.
  'model_type': 'bpe',
  'vocab_size': 700,
  'pad_id': 0,
  'eos_id': 1,
  'bos_id': 2,
  'unk_id': 3,
  'eos_piece': '<eos>',
  'bos_piece': '<bos>',
  'byte_fallback': True,
  'add_dummy_prefix': False,
  'remove_extra_whitespaces': False,
  'split_digits': True,
  'allow_whitespace_only_pieces': True,
}


def train(texts, name, **how):
  """Writes a SentencePiece model."""
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(texts),
    model_prefix=str(FOLDER / name),
    character_coverage=0.98,
    hard_vocab_limit=False,
    **NORMALIZER,
    **how,
  )
  (FOLDER / f'{name}.vocab').unlink()


def ids_of(tokenizer, texts):
  """Returns the ids as a model of transformers is given them."""
  how = {'padding': 'max_length', 'truncation': True, 'max_length': LENGTH}
  return tokenizer(texts, **how)['input_ids']


def main():
  FOLDER.mkdir(exist_ok=True)
  texts = json.loads((GOLDEN / 'clip_tokens' / 'texts.json').read_text())
  lines = [line.lower() for text in texts[3:47] for line in text.split('\n')]
  train(lines, 'spiece', **PIECES)
  train(lines, 'tokenizer', **BYTES)
  siglip = transformers.SiglipTokenizer(str(FOLDER / 'spiece.model'))
  pieces = sentencepiece.SentencePieceProcessor(str(FOLDER / 'tokenizer.model'))
  vocab = {pieces.id_to_piece(i): i for i in range(pieces.get_piece_size())}
  gemma = tokenization_siglip2.Siglip2Tokenizer(
    vocab=vocab,
    merges=generate_merges(vocab),
    add_bos_token=False,
    add_eos_token=True,
    padding_side='right',
  )
  with tempfile.TemporaryDirectory() as folder:
    gemma.save_pretrained(folder)
    saved = json.loads((pathlib.Path(folder) / 'tokenizer.json').read_text())
  (FOLDER / 'tokenizer.json').write_text(json.dumps(saved))
  ids = {'siglip': ids_of(siglip, texts), 'gemma': ids_of(gemma, texts)}
  (FOLDER / 'ids.json').write_text(json.dumps(ids))


if __name__ == '__main__':
  main()
