"""Token ids are those of the official preprocessing; bad files are named."""

import pickle

import numpy as np
import pytest
import sentencepiece

from vit_jax import models
from vit_jax.data.texts import text
from vit_jax.runtime import errors


def bert(tmp_path, words, max_len=8):
  path = tmp_path / 'vocab.txt'
  path.write_text('\n'.join(words.split()), encoding='utf-8')
  return text.get_tokenizer('bert', path, max_len)


@pytest.fixture(scope='module')
def piece_model(tmp_path_factory):
  """A SentencePiece model that folds case."""
  folder = tmp_path_factory.mktemp('sentencepiece')
  (folder / 'text').write_text('a photo of a red cat\nthe blue dog\n' * 9)

  def train(name, **options):
    sentencepiece.SentencePieceTrainer.train(
      input=str(folder / 'text'),
      model_prefix=str(folder / name),
      vocab_size=40,
      hard_vocab_limit=False,
      minloglevel=3,
      **options,
    )
    return folder / f'{name}.model'

  return train


def test_the_official_example(tmp_path):
  tokenizer = bert(tmp_path, '[PAD] [CLS] some test words', 3)
  tokens = tokenizer(['some', 'test', 'words', 'xxx'])
  assert tokens.dtype == np.int32
  assert tokens.tolist() == [[1, 2, 0], [1, 3, 0], [1, 4, 0], [1, 5, 0]]
  assert tokenizer.num_ids == 6  # One past the vocabulary is for 'xxx'.


def test_bert_clips_pads_and_knows_unknown_words(tmp_path):
  tokenizer = bert(tmp_path, '[PAD] [UNK] [CLS] a b ##c', 4)
  tokens = tokenizer(['', 'a', 'a b a b', 'bc', 'abc', 'x'])
  assert tokens.tolist() == [
    [2, 0, 0, 0],
    [2, 3, 0, 0],
    [2, 3, 4, 3],
    [2, 4, 5, 0],
    [2, 1, 0, 0],
    [2, 1, 0, 0],
  ]
  assert tokenizer.num_ids == 6


@pytest.mark.parametrize(
  'given, same',
  [
    ('NaÏve CAFÉ', 'naive cafe'),
    ('cafe\u0301', 'cafe'),
    ('naive,cafe', 'naive , cafe'),
    ('a中文a', 'a 中 文 a'),
    ('a\tb\n\na\u00a0b', 'a b a b'),
    ('a\x00b', 'a b'),
    # What TensorFlow Text folds and BERT's own tokeniser does not.
    ('Straße', 'strasse'),
    ('ﬁ', 'fi'),
    ('\uff21\u2121', 'atel'),
    ('a\u00adb a\u200bb', 'ab ab'),
  ],
)
def test_case_accents_and_punctuation_are_as_in_tensorflow(
  tmp_path, given, same
):
  words = '[PAD] [UNK] [CLS] naive cafe a b , 中 文 ab strasse fi atel'
  tokenizer = bert(tmp_path, words, 16)
  tokens = tokenizer([same])
  assert 1 not in tokens
  np.testing.assert_array_equal(tokenizer([given]), tokens)


def test_special_tokens_in_a_text_are_words(tmp_path):
  tokenizer = bert(tmp_path, '[PAD] [UNK] [CLS] [ cls ]', 6)
  assert tokenizer(['[CLS]']).tolist() == [[2, 3, 4, 5, 0, 0]]


def test_sentencepiece_ends_with_sticky_end(piece_model):
  path = piece_model('folds', normalization_rule_name='nmt_nfkc_cf')
  tokenizer = text.get_tokenizer('sentencepiece', path, 5)
  processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
  end = processor.eos_id()
  long = processor.encode('a photo of the red dog')
  assert len(long) > 5
  cat = processor.encode('cat')[:4]
  tokens = tokenizer(['a photo of the red dog', 'cat', ''])
  assert tokens.dtype == np.int32
  assert tokens.tolist() == [
    [*long[:4], end],
    [*cat, *[end] * (5 - len(cat))],
    [end] * 5,
  ]
  # Whether case counts is the model's own affair.
  assert tokenizer(['CAT']).tolist() == tokenizer(['cat']).tolist()
  keeps = text.get_tokenizer('sentencepiece', piece_model('keeps'), 5)
  assert keeps(['CAT']).tolist() != keeps(['cat']).tolist()


def test_tokenizers_can_be_pickled(tmp_path, piece_model):
  pieces = text.get_tokenizer('sentencepiece', piece_model('travels'), 4)
  for tokenizer in (bert(tmp_path, '[PAD] [CLS] cat'), pieces):
    copy = pickle.loads(pickle.dumps(tokenizer))
    np.testing.assert_array_equal(copy(['cat dog']), tokenizer(['cat dog']))


def test_bad_vocabularies_are_named(tmp_path, piece_model):
  files = {
    'empty': b'',
    'words': b'some\nwords\n',
    'bytes': b'\xff\xfe\x00',
  }
  for name, data in files.items():
    (tmp_path / name).write_bytes(data)
  for tokenizer, path, message in (
    ('bert', tmp_path / 'absent', "absent' cannot be read: No such file"),
    ('bert', tmp_path / 'empty', 'empty is an empty file'),
    ('bert', tmp_path / 'words', r'none of its 2 lines is \[CLS\]'),
    ('bert', tmp_path / 'bytes', 'not a text file. Is it a SentencePiece'),
    ('sentencepiece', tmp_path / 'absent', 'cannot be read: No such file'),
    ('sentencepiece', tmp_path / 'empty', 'is an empty file'),
    ('sentencepiece', tmp_path / 'words', 'is not a SentencePiece model'),
    (
      'sentencepiece',
      piece_model('endless', eos_id=-1),
      r'has \d+ pieces, none of which is </s>',
    ),
    ('word', tmp_path / 'words', "no tokeniser 'word', only bert and sente"),
  ):
    with pytest.raises(errors.UserError, match=message):
      text.get_tokenizer(tokenizer, path, 4)


@pytest.mark.parametrize(
  'name, size',
  [('lit_b16b', 30_522), ('lit_l16l', 30_522), ('lit_l16s', 16_000)],
)
def test_a_vocabulary_must_fit_the_embeddings(tmp_path, name, size):
  model = models.get_model(name)
  assert model.vocab_size == size
  words = ['[PAD]', '[CLS]', *(f'w{i}' for i in range(size - 2))]
  tokenizer = bert(tmp_path, ' '.join(words))
  # The id of unknown words is one too many.
  with pytest.raises(
    errors.UserError,
    match=f'vocab.txt gives token ids up to {size}, .* {size} ids',
  ):
    text.check_vocabulary(tokenizer, model.vocab_size, tmp_path / 'vocab.txt')
  tokenizer = bert(tmp_path, ' '.join(words).replace('w0', '[UNK]', 1))
  text.check_vocabulary(tokenizer, model.vocab_size, tmp_path / 'vocab.txt')
