"""Token ids of CLIP are those of transformers and of open_clip."""

import json
import pickle
import shutil

from golden_files import GOLDEN
from golden_files import golden_json
import numpy as np
import pytest

from vit_jax.data.texts import text
from vit_jax.runtime import errors

FOLDER = GOLDEN / 'clip_tokens'
FILES = ('tokenizer.json', 'vocab.json', 'merges.txt')
TEXTS = golden_json('clip_tokens/texts.json')
MERGES = 'bpe_simple_vocab_16e6.txt.gz'


@pytest.mark.parametrize('file', [*FILES, MERGES])
def test_ids_are_those_of_transformers(file):
  want = golden_json('clip_tokens/ids.json')['transformers']
  tokenizer = text.get_tokenizer('clip', FOLDER / file, 16)
  assert len(want) == 200
  np.testing.assert_array_equal(tokenizer(TEXTS), want)
  assert (tokenizer.end, tokenizer.num_ids) == (913, 914)


@pytest.mark.parametrize('file', ['tokenizer.json', MERGES])
def test_ids_are_those_of_open_clip(file):
  want = golden_json('clip_tokens/ids.json')['open_clip']
  tokenizer = text.get_tokenizer('open_clip', FOLDER / file, 16)
  np.testing.assert_array_equal(tokenizer(TEXTS), want)


def test_every_file_becomes_a_tokenizer_json(tmp_path):
  kind = text.TOKENIZERS['clip']
  assert text.find('clip', FOLDER) == str(FOLDER / 'tokenizer.json')
  assert text.find('clip', tmp_path) is None
  for file in (*FILES, MERGES):
    path = tmp_path / kind.saved
    path.write_bytes(kind.content(FOLDER / file))
    one = text.get_tokenizer('clip', FOLDER / file, 16)
    again = pickle.loads(pickle.dumps(text.get_tokenizer('clip', path, 16)))
    np.testing.assert_array_equal(one(TEXTS), again(TEXTS))


def test_a_vocabulary_may_have_the_word_model(tmp_path):
  for name in ('vocab.json', 'merges.txt'):
    shutil.copy(FOLDER / name, tmp_path)
  words = json.loads((tmp_path / 'vocab.json').read_text())
  want = text.get_tokenizer('clip', tmp_path / 'vocab.json', 16)(TEXTS)
  words['model'] = len(words)  # As CLIP's has.
  (tmp_path / 'vocab.json').write_text(json.dumps(words))
  found = text.get_tokenizer('clip', tmp_path / 'vocab.json', 16)
  np.testing.assert_array_equal(found(TEXTS), want)
  saved = text.TOKENIZERS['clip'].content(tmp_path / 'vocab.json')
  assert isinstance(json.loads(saved)['model'], dict)


def test_wrong_vocabularies_are_named(tmp_path):
  (tmp_path / 'words').write_text('[CLS]\na\nb')
  (tmp_path / 'vocab.json').write_text('{"a": 0}')
  (tmp_path / 'bytes').write_bytes(b'\x80\x81')
  for name, message in (
    ('absent', "absent' cannot be read"),
    ('words', 'words is not a vocabulary of byte pairs'),
    ('vocab.json', r"merges.txt' cannot be read: No such file"),
    ('bytes', 'bytes is not a vocabulary of byte pairs'),
  ):
    with pytest.raises(errors.UserError, match=message):
      text.get_tokenizer('clip', tmp_path / name, 16)
  (tmp_path / 'merges.txt').write_text('#version: 0.2')
  with pytest.raises(errors.UserError, match=r'it has 1 tokens, none of which'):
    text.get_tokenizer('clip', tmp_path / 'vocab.json', 16)


def test_a_vocabulary_must_end_texts_where_the_tower_reads_them():
  pp, path = {'tokenizer_name': 'clip', 'max_len': 16}, FOLDER / FILES[0]
  text.of_model(pp, {'end': 913}, 914, path)
  with pytest.raises(errors.UserError, match='with the id 913, but .* at 912'):
    text.of_model(pp, {'end': 912}, 914, path)
