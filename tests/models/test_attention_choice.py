"""Attention is chosen by measurement, and what fails is not chosen."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from run_files import tiny

from vit_jax import models
from vit_jax.models import attention
from vit_jax.models import attention_choice
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import workdir
from vit_jax.training import resolve
from vit_jax.training import start

HOW = {
  'batch': 2,
  'tokens': 5,
  'width': 16,
  'num_heads': 2,
  'dtype': 'bfloat16',
  'heads_are_split': False,
}


@pytest.fixture
def gpu(monkeypatch):
  """What asks for the backend is told it is a GPU."""
  monkeypatch.setattr(
    attention_choice.jax, 'default_backend', lambda: 'gpu', raising=True
  )


@pytest.fixture
def stand_in(monkeypatch):
  """In place of cuDNN, XLA computes, and refuses odd numbers of tokens."""
  asked, calls = jax.nn.dot_product_attention, []

  def even_only(query, key, value, **how):
    assert [x.shape[1] % 2 for x in (query, key)] == [0, 0]
    assert how.pop('implementation') == 'cudnn'
    calls.append(how)
    return asked(query, key, value, **how, implementation='xla')

  monkeypatch.setattr(attention.jax.nn, 'dot_product_attention', even_only)
  return calls


def test_choose_measures_on_gpus_only():
  assert attention_choice.choose('auto', **HOW) == 'xla'
  with pytest.raises(errors.UserError, match=r'needs a GPU \(here: cpu\)'):
    attention_choice.choose('cudnn', **HOW)


@pytest.mark.usefixtures('gpu')
@pytest.mark.parametrize(
  'name, value', [('dtype', 'float32'), ('heads_are_split', True)]
)
def test_choose_refuses_cudnn_where_it_cannot_run(name, value):
  how = HOW | {name: value}
  assert attention_choice.choose('auto', **how) == 'xla'
  with pytest.raises(errors.UserError, match="config.attention is 'cudnn'"):
    attention_choice.choose('cudnn', **how)


@pytest.mark.usefixtures('gpu')
@pytest.mark.parametrize('faster', ['xla', 'cudnn'])
def test_choose_returns_the_fastest(monkeypatch, faster):
  monkeypatch.setattr(
    attention_choice,
    '_measured',
    lambda name, *_: (1.0 + (name != faster), None),
  )
  assert attention_choice.choose('auto', **HOW) == faster


@pytest.mark.usefixtures('gpu')
def test_choose_skips_an_implementation_that_fails():
  """There is no cuDNN here: the other one is measured, really."""
  assert attention_choice.choose('auto', **HOW) == 'xla'
  measured = attention_choice._measured
  assert measured('cudnn', (2, 5, 16), 2, False) == (float('inf'), None)
  assert 0 < measured('xla', (2, 5, 16), 2, False)[0] < float('inf')


@pytest.mark.parametrize(
  'pads_in_blocks, wrong, near',
  [(False, 0.0, True), (True, 0.0, True), (False, 1.0, False)],
)
def test_gradients_are_compared_where_the_model_pads(
  stand_in, monkeypatch, pads_in_blocks, wrong, near
):
  """Nothing that cuDNN might write for a masked key may reach the parameters."""
  plain = jax.nn.dot_product_attention

  @jax.custom_vjp
  def spoil(x):
    return x

  def backward(_, gradient):
    return (gradient.at[:, -1].add(wrong),)

  spoil.defvjp(lambda x: (x, None), backward)
  monkeypatch.setattr(
    attention.jax.nn,
    'dot_product_attention',
    lambda q, k, v, **how: plain(q, spoil(k), spoil(v), **how),
  )
  gradients = [
    attention_choice._measured(name, (2, 5, 16), 2, pads_in_blocks)[1]
    for name in attention.ATTENTION
  ]
  assert len(stand_in) > 0
  assert attention_choice._near(gradients[1], gradients[0]) == near


@pytest.mark.parametrize('implementation', attention.ATTENTION)
def test_masked_tokens_are_not_seen(stand_in, implementation):
  layer = attention.MultiHeadDotProductAttention(
    2, implementation=implementation, masked=2
  )
  x = jnp.asarray(np.random.RandomState(0).normal(size=(2, 6, 16)), 'float32')
  params = layer.init(jax.random.key(0), x, deterministic=True)
  y = layer.apply(params, x, deterministic=True)
  other = layer.apply(params, x.at[:, 4:].add(1.0), deterministic=True)
  np.testing.assert_array_equal(y[:, :4], other[:, :4])
  assert (implementation == 'cudnn') == bool(stand_in)
  without = layer.clone(masked=0, implementation='xla')
  want = without.apply(params, x[:, :4], deterministic=True)
  np.testing.assert_allclose(y[:, :4], want, atol=1e-5)


@pytest.mark.usefixtures('gpu')
@pytest.mark.parametrize('wrong', [0.3, float('nan')])
def test_choose_skips_an_implementation_whose_gradients_are_wrong(
  monkeypatch, caplog, wrong
):
  gradients = {'x': jnp.ones((2, 5, 16)), 'kernel': jnp.ones((16, 16))}
  others = gradients | {'x': gradients['x'] + wrong}
  monkeypatch.setattr(
    attention_choice,
    '_measured',
    lambda name, *_: (2.0, gradients) if name == 'xla' else (1.0, others),
  )
  assert attention_choice.choose('auto', **HOW) == 'xla'
  assert 'No attention by cudnn: its gradients are wrong.' in caplog.text


@pytest.mark.parametrize(
  'tokens, others, causal',
  [
    (5, None, False),
    (6, None, False),
    (5, None, True),
    (1, 7, False),
    (4, 3, False),
  ],
)
def test_cudnn_attention_pads_odd_lengths_and_equals_xla(
  stand_in, tokens, others, causal
):
  random = np.random.RandomState(0)
  x = jnp.asarray(random.normal(size=(2, tokens, 16)), 'float32')
  context = None
  if others:
    context = jnp.asarray(random.normal(size=(2, others, 16)), 'float32')
  plain = attention.MultiHeadDotProductAttention(2, causal=causal)
  params = plain.init(jax.random.key(0), x, context, deterministic=True)

  def results(layer):
    def total(params, x):
      y = layer.apply(params, x, context, deterministic=True)
      return jnp.sum(jnp.square(y)), y

    return jax.grad(total, (0, 1), has_aux=True)(params, x)

  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5),
    results(plain.clone(implementation='cudnn')),
    results(plain),
  )


@pytest.mark.parametrize(
  'image, changes, pads',
  [
    ((16, 16), {}, 1),  # 4 patches and the class token.
    ((16, 16), {'transformer': {'scan_layers': True}}, 1),
    ((40, 8), {'classifier': 'gap'}, 1),
    ((16, 16), {'num_registers': 1}, 0),
    ((16, 16), {'rotary_base': 100.0}, 6),  # Queries, keys, values; 2 blocks.
  ],
)
def test_tokens_are_padded_once_for_all_blocks(
  stand_in, monkeypatch, image, changes, pads
):
  """With rotations, each block pads."""
  blocks = {'num_layers': 2, 'mlp_dim': 64, 'num_heads': 4}
  padded, pad = [], attention.pad_to_even
  transformer = {**blocks, **changes.get('transformer', {})}

  def count(x):
    padded.extend([x] * (x.shape[1] % 2))
    return pad(x)

  monkeypatch.setattr(attention, 'pad_to_even', count)
  results = []
  for name in ('xla', 'cudnn'):
    model = models.get_model(
      'ViT-Ti_16',
      num_classes=3,
      hidden_size=32,
      patches={'size': (8, 8)},
      **changes | {'transformer': {**transformer, 'attention': name}},
    )
    shape = (*image, 3)
    params = models.init_params(model, shape)
    params = jax.tree.map(
      lambda x: x + np.random.RandomState(x.size).normal(0, 0.1, x.shape),
      params,
    )
    images = np.random.RandomState(0).normal(size=(2, *shape))

    def total(params, model=model, images=images):
      y = model.apply({'params': params}, images, train=False)
      return jnp.sum(jnp.sin(y)), y

    results.append(jax.grad(total, has_aux=True)(params))
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5),
    *results,
  )
  assert stand_in
  assert len(padded) == pads


def test_attention_is_plain_with_dropout_or_sown_weights():
  layer = attention.MultiHeadDotProductAttention(
    2, dropout_rate=0.5, implementation='cudnn', dtype='bfloat16'
  )
  x = jnp.asarray(np.random.RandomState(0).normal(size=(2, 5, 16)), 'float32')
  plain = layer.clone(implementation='xla')
  variables = plain.init(jax.random.key(0), x, deterministic=True)
  for how in (
    {'deterministic': False, 'rngs': {'dropout': jax.random.key(1)}},
    {'deterministic': True, 'mutable': 'intermediates'},
  ):
    jax.tree.map(
      np.testing.assert_array_equal,
      layer.apply(variables, x, **how),
      plain.apply(variables, x, **how),
    )
  with pytest.raises(Exception, match='(?i)cudnn'):
    layer.apply(variables, x, deterministic=True)


@pytest.mark.usefixtures('gpu')
def test_resumed_run_keeps_its_attention(image_folder, tmp_path, monkeypatch):
  """Another measurement, at resume, would change the bits of what follows."""
  faster = 'cudnn'
  monkeypatch.setattr(
    attention_choice,
    '_measured',
    lambda name, *_: (1.0 + (name != faster), None),
  )
  config = tiny.get_config(str(image_folder))
  config.dtype = 'bfloat16'
  run = workdir.at(tmp_path)
  fill = lambda resumed: (
    resolve.resolve(config, begun=run if resumed else None).config
  )
  first = fill(resumed=False)
  assert first.attention == 'cudnn'
  files.write_json(start.plain(first), tmp_path / 'config.json')
  faster = 'xla'
  assert fill(resumed=False).attention == 'xla'
  assert fill(resumed=True).attention == 'cudnn'
  config.attention = 'xla'  # Whoever sets it gets it.
  assert fill(resumed=True).attention == 'xla'
  config.attention, config.dtype = 'auto', 'float32'  # What cuDNN cannot do.
  assert fill(resumed=True).attention == 'xla'


def test_choose_warns_if_a_resumed_run_loses_cudnn(caplog):
  assert attention_choice.choose('auto', **HOW, before='cudnn') == 'xla'
  assert "used attention 'cudnn' so far" in caplog.text
