"""A small CLIP with a vocabulary, for tests of two towers."""

import dataclasses

from golden_files import GOLDEN
import jax
import numpy as np

from vit_jax import models
from vit_jax.data import preprocessing
from vit_jax.weights import record as weights_lib
from vit_jax.weights.families import clip

VOCABULARY = str(GOLDEN / 'clip_tokens' / 'bpe_simple_vocab_16e6.txt.gz')
CONFIG = {
  'projection_dim': 12,
  'text_config': {
    'hidden_size': 16,
    'intermediate_size': 24,
    'num_hidden_layers': 1,
    'num_attention_heads': 2,
    'vocab_size': 914,
    'max_position_embeddings': 8,
    'eos_token_id': 913,
  },
  'vision_config': {
    'hidden_size': 24,
    'intermediate_size': 32,
    'num_hidden_layers': 1,
    'num_attention_heads': 3,
    'patch_size': 8,
  },
}


def pair(**changes):
  """Returns the weights of a small CLIP, all of them random."""
  model = {'model_name': 'clip', **clip.CLIP.read(CONFIG, False), **changes}
  model['pp'] = {**model['pp'], 'size': 16}
  shapes = models.abstract_params(models.from_config(model), (16, 16, 3))
  rng = np.random.default_rng(0)
  params = jax.tree.map(
    lambda x: rng.normal(0, 0.3, x.shape).astype(np.float32), shapes
  )
  record = preprocessing.Preprocessing(
    size=(16, 16),
    mean=clip.MEAN,
    std=clip.STD,
    interpolation='bicubic',
    resize_test=16,
  )
  return dataclasses.replace(
    weights_lib.Weights(params, model, preprocessing=record),
    vocabulary=VOCABULARY,
  )
