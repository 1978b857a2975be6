"""Token ids of SigLIP and SigLIP 2 are those of transformers."""

import pickle

from golden_files import GOLDEN
from golden_files import golden_json
import numpy as np
import pytest

from vit_jax.data.texts import text
from vit_jax.runtime import errors

FOLDER = GOLDEN / 'siglip_tokens'
TEXTS = golden_json('clip_tokens/texts.json')
FILES = {
  'spiece.model': 'siglip',
  'tokenizer.json': 'gemma',
  'tokenizer.model': 'gemma',
}


@pytest.mark.parametrize('file', FILES)
def test_ids_are_those_of_transformers(file):
  want = golden_json('siglip_tokens/ids.json')[FILES[file]]
  tokenizer = text.get_tokenizer(FILES[file], FOLDER / file, 16)
  assert len(want) == 200
  np.testing.assert_array_equal(tokenizer(TEXTS), want)
  again = pickle.loads(pickle.dumps(tokenizer))
  np.testing.assert_array_equal(again(TEXTS[:9]), want[:9])
  assert np.max(want) < tokenizer.num_ids


def test_siglip_ends_and_pads_with_the_end():
  tokenizer = text.get_tokenizer('siglip', FOLDER / 'spiece.model', 4)
  rows = tokenizer(['', 'a', 'A!', 'a b c d e f g h'])
  assert rows[0].tolist() == [1, 1, 1, 1]
  assert (rows[1] == rows[2]).all()
  assert rows[3, -1] == 1


def test_gemma_ends_with_one_end_and_pads():
  tokenizer = text.get_tokenizer('gemma', FOLDER / 'tokenizer.json', 4)
  rows = tokenizer(['', 'a', 'A', 'abcdefghijkl'])
  assert rows[0].tolist() == [1, 0, 0, 0]
  assert (rows[1] == rows[2]).all()
  assert rows[3, -1] == 1


def test_vocabularies_keep_their_name_in_artifacts(tmp_path):
  for file, name in FILES.items():
    kind = text.TOKENIZERS[name]
    assert kind.saved_as(FOLDER / file) == file
    assert kind.content(FOLDER / file) == (FOLDER / file).read_bytes()
  assert text.find('siglip', FOLDER) == str(FOLDER / 'spiece.model')
  assert text.find('gemma', FOLDER) == str(FOLDER / 'tokenizer.json')
  kind = text.TOKENIZERS['gemma']
  assert kind.saved_as('gemma_tokenizer.model') == 'tokenizer.model'
  assert text.TOKENIZERS['clip'].saved_as('vocab.json') == 'tokenizer.json'


def test_wrong_vocabularies_are_named(tmp_path):
  (tmp_path / 'words').write_text('[CLS]\na\nb')
  (tmp_path / 'x.json').write_text('{"a": 0}')
  for name in ('words', 'x.json'):
    with pytest.raises(
      errors.UserError, match=f'{name} is neither a tokenizer'
    ):
      text.get_tokenizer('gemma', tmp_path / name, 16)
  with pytest.raises(errors.UserError, match="is not Gemma's vocabulary"):
    text.get_tokenizer('gemma', GOLDEN / 'clip_tokens' / 'tokenizer.json', 16)
  with pytest.raises(errors.UserError, match='none of which is </s>'):
    text.get_tokenizer('siglip', FOLDER / 'tokenizer.model', 16)
