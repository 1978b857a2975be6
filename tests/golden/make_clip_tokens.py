"""Makes `clip_tokens`, with transformers and open_clip: a small vocabulary.

Its `texts.json` was written by hand and, from the 48th text on, drawn at random.
"""

import gzip
import json
import pathlib
import tempfile

import open_clip
from open_clip import tokenizer as open_clip_tokenizer
import transformers

FOLDER = pathlib.Path(__file__).parent / 'clip_tokens'
NUM_MERGES = 400
LENGTH = 16


def main():
  FOLDER.mkdir(exist_ok=True)
  texts = json.loads((FOLDER / 'texts.json').read_text())
  with gzip.open(open_clip_tokenizer.default_bpe(), 'rt') as f:
    merges = f.read().split('\n')[: NUM_MERGES + 1]
  # Its tokeniser reads up to a fixed line, after which there is nothing.
  small = FOLDER / 'bpe_simple_vocab_16e6.txt.gz'
  small.write_bytes(gzip.compress('\n'.join(merges).encode(), mtime=0))
  simple = open_clip.SimpleTokenizer(str(small), context_length=LENGTH)
  special = {
    '<start_of_text>': '<|startoftext|>',
    '<end_of_text>': '<|endoftext|>',
  }
  vocab = {special.get(k, k): i for k, i in simple.encoder.items()}
  with tempfile.TemporaryDirectory() as folder:
    theirs = transformers.CLIPTokenizer(
      vocab=vocab, merges=[tuple(m.split()) for m in merges[1:]]
    )
    theirs.save_pretrained(folder)
    for name in ('tokenizer.json', 'tokenizer_config.json'):
      path = pathlib.Path(folder) / name
      (FOLDER / name).write_bytes(path.read_bytes())
  (FOLDER / 'vocab.json').write_text(json.dumps(vocab))
  (FOLDER / 'merges.txt').write_text(
    '\n'.join(['#version: 0.2', *merges[1:]]) + '\n'
  )
  ids = theirs(texts, padding='max_length', truncation=True, max_length=LENGTH)[
    'input_ids'
  ]
  expected = {
    'transformers': ids,
    'open_clip': simple(texts).tolist(),
  }
  (FOLDER / 'ids.json').write_text(json.dumps(expected))


if __name__ == '__main__':
  main()
