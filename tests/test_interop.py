"""Weights of transformers, timm and big_vision, both ways."""

import dataclasses
import json
import shutil

from conftest import GOLDEN
from conftest import golden_json
from conftest import run
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from vit_jax import artifact
from vit_jax import checkpoint
from vit_jax import convert
from vit_jax import errors
from vit_jax import models
from vit_jax import predictor
from vit_jax import weights as weights_lib
from vit_jax.interop import files
from vit_jax.interop import huggingface
from vit_jax.interop import timm_names
from vit_jax.interop import to_timm

TOKEN = GOLDEN / 'vit_token.npz'
PYTORCH = ('hf_vit', 'hf_vit_model', 'timm_vit', 'timm_vit_gap')


def outputs(weights, images, **changes):
  model = weights.module().clone(**changes)
  return model.apply({'params': weights.params}, images, train=False)


def assert_same(params, others):
  params, others = weights_lib.flatten(params), weights_lib.flatten(others)
  assert params.keys() == others.keys()
  for name, x in params.items():
    np.testing.assert_array_equal(x, others[name], err_msg=name)


def copied(name, folder):
  shutil.copytree(GOLDEN / name, folder)
  (folder / 'io.npz').unlink()
  return folder


def changed(name, folder, change):
  """Copies a folder, its arrays as `change` makes them."""
  folder = copied(name, folder)
  path = folder / 'model.safetensors'
  arrays = change(safetensors.numpy.load_file(path))
  safetensors.numpy.save_file(arrays, path)
  return folder


@pytest.mark.parametrize('name', PYTORCH)
@pytest.mark.parametrize('is_folder', [True, False])
def test_equals_the_outputs_of_pytorch(name, is_folder):
  path = GOLDEN / name
  path = path if is_folder else path / 'model.safetensors'
  weights = checkpoint.read(path)
  with np.load(path / 'io.npz' if is_folder else path.parent / 'io.npz') as io:
    want = io['pooler_output' if name == 'hf_vit_model' else 'outputs']
    got = outputs(weights, io['inputs'])
  np.testing.assert_allclose(got, want, atol=1e-5)
  assert weights.image_shape == (32, 32, 3)


def test_hidden_states_of_a_headless_model():
  weights = checkpoint.read(GOLDEN / 'hf_vit_model')
  params = {k: v for k, v in weights.params.items() if k != 'pre_logits'}
  weights = dataclasses.replace(weights, params=params)
  with np.load(GOLDEN / 'hf_vit_model' / 'io.npz') as io:
    got = outputs(
      weights,
      io['inputs'],
      classifier='token_unpooled',
      representation_size=None,
    )
    np.testing.assert_allclose(got, io['last_hidden_state'], atol=1e-5)


@pytest.mark.parametrize('name', PYTORCH)
def test_exporting_gives_the_same_file_again(name):
  export = huggingface.export if name.startswith('hf') else to_timm.export
  arrays, contents = export(checkpoint.read(GOLDEN / name))
  original = files.read_safetensors(GOLDEN / name)
  assert arrays.keys() == original.keys()
  for key, x in original.items():
    np.testing.assert_array_equal(arrays[key], x, err_msg=key)
  if name.startswith('hf'):
    have, want = contents['config.json'], golden_json(f'{name}/config.json')
    ignored = {'transformers_version', 'initializer_range', 'encoder_stride'}
    if name == 'hf_vit_model':
      ignored |= {'id2label', 'label2id'}
    have = json.loads(json.dumps(have))
    assert {k: have[k] for k in want.keys() - ignored} == {
      k: want[k] for k in want.keys() - ignored
    }


def random_weights(config, *, num_classes=5, size=64, **changes):
  model = models.from_config(config | changes, num_classes=num_classes or None)
  shapes = jax.eval_shape(lambda: models.init_params(model, (size, size, 3)))
  rng = np.random.default_rng(0)
  params = jax.tree.map(
    lambda x: rng.normal(0, 0.1, x.shape).astype(np.float32), shapes
  )
  return weights_lib.Weights(
    params=params,
    model=config | changes,
    class_names=[f'name {i}' for i in range(num_classes)],
    image_shape=(size, size, 3),
    mean=(0.4, 0.5, 0.6),
    std=(0.2, 0.25, 0.3),
  )


GOLDEN_CONFIG = golden_json('index.json')['vit_token']['config']
HYBRID = golden_json('index.json')['hybrid_resnet_stages']['config']
STEM = golden_json('index.json')['hybrid_r_stem']['config']
MIXER = golden_json('index.json')['mixer']['config']


@pytest.mark.parametrize(
  'to, config, changes',
  [
    ('huggingface', GOLDEN_CONFIG, {}),
    ('huggingface', GOLDEN_CONFIG, {'patches': {'size': [4, 8]}}),
    ('timm', GOLDEN_CONFIG, {}),
    ('timm', GOLDEN_CONFIG, {'classifier': 'gap'}),
    ('timm', GOLDEN_CONFIG, {'classifier': 'gap', 'fc_norm': True}),
    ('timm', GOLDEN_CONFIG, {'classifier': 'token_gap', 'fc_norm': True}),
    ('timm', GOLDEN_CONFIG, {'classifier': 'token_gap'}),
    ('timm', HYBRID, {'resnet': {'num_layers': [2, 1], 'width_factor': 1}}),
    ('timm', STEM, {'resnet': {'num_layers': [], 'width_factor': 1}}),
    ('timm', MIXER, {}),
  ],
)
def test_round_trip_is_bit_exact(tmp_path, monkeypatch, to, config, changes):
  # Sizes that timm could not make are fine for this.
  monkeypatch.setattr(to_timm, '_hybrid_architecture', lambda *_: 'hybrid')
  monkeypatch.setattr(to_timm, '_mixer_architecture', lambda *_: 'mixer')
  weights = random_weights(config, **changes)
  checkpoint.save(weights.params, tmp_path / 'a.npz')
  convert.convert(weights, str(tmp_path / 'folder'), to)
  back = checkpoint.read(tmp_path / 'folder')
  convert.convert(back, str(tmp_path / 'b.npz'), 'npz')
  assert_same(
    checkpoint.load(tmp_path / 'a.npz'), checkpoint.load(tmp_path / 'b.npz')
  )
  for field in ('class_names', 'image_shape', 'mean', 'std'):
    assert getattr(back, field) == getattr(weights, field), field
  images = np.random.default_rng(1).uniform(-1, 1, (2, *weights.image_shape))
  images = images.astype(np.float32)
  np.testing.assert_array_equal(outputs(weights, images), outputs(back, images))


@pytest.mark.parametrize('to', ['huggingface', 'timm'])
def test_exact_gelu_and_epsilon_come_along(tmp_path, to):
  transformer = GOLDEN_CONFIG['transformer'] | {
    'exact_gelu': True,
    'layer_norm_epsilon': 1e-3,
  }
  weights = random_weights(GOLDEN_CONFIG, transformer=transformer)
  convert.convert(weights, str(tmp_path / 'x'), to)
  back = checkpoint.read(tmp_path / 'x').model['transformer']
  assert (back['exact_gelu'], back['layer_norm_epsilon']) == (True, 1e-3)


def big_vision_params(params, stack):
  """Names and position embeddings as big_vision has them, for one model."""
  encoder = dict(params['Transformer'])
  posemb = encoder.pop('posembed_input')['pos_embedding']
  if stack:
    blocks = [encoder.pop(f'encoderblock_{i}') for i in range(3)]
    encoder['encoderblock'] = jax.tree.map(lambda *x: np.stack(x), *blocks)
  result = {**params, 'Transformer': encoder, 'pos_embedding': posemb}
  if 'cls' in params:  # Which has no position embedding there.
    result['cls'] = params['cls'] + posemb[:, :1]
    result['pos_embedding'] = posemb[:, 1:]
  return result


@pytest.mark.parametrize('stack', [False, True])
@pytest.mark.parametrize('name', ['vit_token', 'vit_gap'])
def test_big_vision_checkpoints(tmp_path, name, stack):
  params = big_vision_params(checkpoint.load(GOLDEN / f'{name}.npz'), stack)
  flat = weights_lib.flatten({'params': params, 'opt': {'count': np.zeros(3)}})
  np.savez(tmp_path / 'x.npz', **flat)
  weights = checkpoint.read(tmp_path / 'x.npz')
  with np.load(GOLDEN / f'{name}.io.npz') as io:
    got = outputs(weights, io['inputs'])
    np.testing.assert_allclose(got, io['outputs'], atol=1e-5)


def test_timm_without_a_position_embedding_for_the_class_token(tmp_path):
  def change(arrays):
    posemb = arrays['pos_embed']
    arrays['cls_token'] = arrays['cls_token'] + posemb[:, :1]
    return arrays | {'pos_embed': np.ascontiguousarray(posemb[:, 1:])}

  folder = changed('timm_vit', tmp_path / 'x', change)
  with np.load(GOLDEN / 'timm_vit' / 'io.npz') as io:
    got = outputs(checkpoint.read(folder), io['inputs'])
    np.testing.assert_allclose(got, io['outputs'], atol=1e-5)


@pytest.mark.parametrize('dtype', [np.float16, jnp.bfloat16])
def test_half_precision_is_read_as_float32(tmp_path, dtype):
  folder = changed(
    'hf_vit',
    tmp_path / 'x',
    lambda arrays: {k: x.astype(dtype) for k, x in arrays.items()},
  )
  weights = checkpoint.read(folder)
  assert {x.dtype for x in jax.tree.leaves(weights.params)} == {
    np.dtype(np.float32)
  }
  with np.load(GOLDEN / 'hf_vit' / 'io.npz') as io:
    error = np.abs(outputs(weights, io['inputs']) - io['outputs']).max()
  assert 1e-5 < error < 0.1


def sharded(folder):
  arrays = safetensors.numpy.load_file(folder / 'model.safetensors')
  (folder / 'model.safetensors').unlink()
  names = sorted(arrays)
  parts = {'a.safetensors': names[::2], 'b.safetensors': names[1::2]}
  for file, part in parts.items():
    safetensors.numpy.save_file({k: arrays[k] for k in part}, folder / file)
  files.write_json(
    {'weight_map': {k: f for f, part in parts.items() for k in part}},
    folder / 'model.safetensors.index.json',
  )
  return folder


def test_shards_are_joined_and_missing_ones_named(tmp_path):
  folder = sharded(copied('hf_vit', tmp_path / 'x'))
  assert_same(checkpoint.load(folder), checkpoint.load(GOLDEN / 'hf_vit'))
  (folder / 'b.safetensors').unlink()
  with pytest.raises(errors.UserError, match=r'1 of 2 shards .* b.safetensors'):
    checkpoint.load(folder)


def without(name):
  return lambda arrays: {k: x for k, x in arrays.items() if k != name}


def transposed(name):
  return lambda arrays: {
    k: np.ascontiguousarray(x.T) if k == name else x for k, x in arrays.items()
  }


def swin(arrays):
  return {
    k.replace('blocks', 'layers.0.blocks') + '_table': x
    for k, x in arrays.items()
  }


@pytest.mark.parametrize(
  'name, change, message',
  [
    ('timm_vit', swin, 'neither a ViT of transformers nor of timm: its 44'),
    (
      'timm_vit',
      lambda x: x | {'blocks.0.ls1.gamma': x['norm.bias']},
      r'0 arrays are missing, 1 left over. No such model has blocks.0.ls1',
    ),
    ('timm_vit', without('blocks.1.norm2.bias'), r'lacks blocks.1.norm2.bias'),
    ('hf_vit', without('classifier.bias'), r'It lacks classifier.bias'),
    (
      'hf_vit',
      transposed('vit.encoder.layer.1.intermediate.dense.weight'),
      r'Dense_0/kernel \(vit.encoder.layer.1.intermediate.dense.weight\):'
      r' \(64, 32\), the model wants \(32, 64\)',
    ),
    (
      'timm_vit',
      transposed('blocks.0.attn.qkv.weight'),
      r'No such model has blocks.0.attn.qkv.weight',
    ),
  ],
)
def test_wrong_arrays_are_named(tmp_path, name, change, message):
  folder = changed(name, tmp_path / 'x', change)
  if change is swin:
    (folder / 'config.json').unlink()
  with pytest.raises(errors.UserError, match=f'(?s){message}'):
    checkpoint.load(folder)


@pytest.mark.parametrize(
  'name, settings, message',
  [
    ('hf_vit', {'model_type': 'swin'}, "of type 'swin' of transformers"),
    ('hf_vit', {'hidden_act': 'relu'}, "activation 'relu'"),
    ('hf_vit', {'num_attention_heads': 5}, 'which 5 heads do not divide'),
    ('hf_vit', {'image_size': 64}, r'\(1, 17, 32\), the model wants \(1, 65'),
    ('timm_vit', {'global_pool': 'map'}, "pools by 'map'"),
    ('timm_vit', {'model_args': {'act_layer': 'silu'}}, "activation 'silu'"),
  ],
)
def test_wrong_configs_are_refused(tmp_path, name, settings, message):
  folder = copied(name, tmp_path / 'x')
  config = json.loads((folder / 'config.json').read_text())
  if 'model_args' in settings:
    settings['model_args'] |= {'num_heads': 4}
  (folder / 'config.json').write_text(json.dumps(config | settings))
  with pytest.raises(errors.UserError, match=message):
    checkpoint.load(folder)


def test_heads_must_be_known(tmp_path):
  folder = copied('timm_vit', tmp_path / 'x')
  (folder / 'config.json').unlink()
  with pytest.raises(errors.UserError, match='how many heads .* config.json'):
    checkpoint.load(folder)


def test_pickles_are_not_opened(tmp_path):
  (tmp_path / 'pytorch_model.bin').write_bytes(b'\x80\x02')
  with pytest.raises(errors.UserError, match='never opened.*safetensors'):
    checkpoint.load(tmp_path)


def test_damaged_json_is_named(tmp_path):
  folder = copied('hf_vit', tmp_path / 'x')
  (folder / 'config.json').write_text('{"model_type": ')
  with pytest.raises(errors.UserError, match=r'config.json is damaged'):
    checkpoint.load(folder)


@pytest.mark.parametrize(
  'to, changes, message',
  [
    ('huggingface', {'classifier': 'gap'}, "no classifier 'gap'.*--to=timm"),
    ('huggingface', {'representation_size': 8}, 'no tanh layer'),
    ('timm', {'representation_size': 8}, 'no tanh layer'),
  ],
)
def test_what_a_library_has_no_model_for(tmp_path, to, changes, message):
  weights = random_weights(GOLDEN_CONFIG, **changes)
  with pytest.raises(errors.UserError, match=message):
    convert.convert(weights, str(tmp_path / 'x'), to)
  assert not list(tmp_path.iterdir())


def test_timm_makes_only_released_mixers_and_hybrids():
  for config in (MIXER, HYBRID):
    with pytest.raises(errors.UserError, match='it has the released'):
      to_timm.export(random_weights(config))


@pytest.mark.parametrize(
  'config', [GOLDEN_CONFIG, GOLDEN_CONFIG | {'classifier': 'gap'}, HYBRID]
)
def test_an_artifact_has_safetensors_that_pytorch_people_can_read(
  tmp_path, config
):
  weights = random_weights(config)
  artifact.save(tmp_path / 'artifact', weights)
  again = checkpoint.read(tmp_path / 'artifact')
  assert_same(weights.params, again.params)
  assert again.mean == weights.mean
  # The other file alone has the same parameters, in another naming.
  (tmp_path / 'artifact' / 'model.npz').unlink()
  config = json.loads((tmp_path / 'artifact' / 'config.json').read_text())
  del config['format']
  (tmp_path / 'artifact' / 'config.json').write_text(json.dumps(config))
  assert_same(weights.params, checkpoint.load(tmp_path / 'artifact'))


def test_converting_from_the_command_line(tmp_path):
  args = ('vit_jax.convert', str(TOKEN), str(tmp_path / 'x'))
  result = run(*args, '--to=huggingface')
  assert result.returncode == 0, result.stderr
  assert '32,778 parameters, 10 classes, 32x32 pixels' in result.stdout
  assert_same(checkpoint.load(tmp_path / 'x'), checkpoint.load(TOKEN))
  result = run(*args, '--to=timm')
  assert result.returncode == 1
  assert f'{tmp_path}/x exists' in result.stderr
  assert 'Traceback' not in result.stderr


def test_converting_to_half_the_size(tmp_path):
  weights = checkpoint.read(TOKEN)
  for dtype in ('float32', 'float16'):
    convert.convert(weights, str(tmp_path / f'{dtype}.npz'), 'npz', dtype)
  with np.load(tmp_path / 'float16.npz') as arrays:
    assert {str(x.dtype) for x in arrays.values()} == {'float16'}
  got = checkpoint.load(tmp_path / 'float16.npz')
  for x, want in zip(
    jax.tree.leaves(got), jax.tree.leaves(weights.params), strict=True
  ):
    assert x.dtype == np.float32
    np.testing.assert_array_equal(x, want.astype(np.float16))
  with pytest.raises(errors.UserError, match='--dtype=float16 is for --to=npz'):
    convert.convert(weights, str(tmp_path / 'x'), 'timm', 'float16')


def test_converting_what_does_not_tell_its_image_size(tmp_path):
  nonsquare = GOLDEN / 'vit_nonsquare.npz'
  args = ('vit_jax.convert', str(nonsquare), str(tmp_path / 'x'), '--to=timm')
  result = run(*args)
  assert '--image_size=HEIGHT,WIDTH' in result.stderr
  result = run(*args, '--image_size=32,48')
  assert result.returncode == 0, result.stderr
  assert checkpoint.read(tmp_path / 'x').image_shape == (32, 48, 3)


def test_predicting_with_a_zero_head_is_refused(tmp_path):
  params = checkpoint.load(TOKEN)
  params['head'] = jax.tree.map(np.zeros_like, params['head'])
  checkpoint.save(params, tmp_path / 'zero.npz')
  weights = checkpoint.read(tmp_path / 'zero.npz')
  with pytest.raises(errors.UserError, match='head of these weights is all'):
    predictor.Predictor(weights).predict('image.jpg')
  weights = checkpoint.read(GOLDEN / 'hf_vit_model')
  with pytest.raises(errors.UserError, match='have no head'):
    predictor.Predictor(weights).predict('image.jpg')


def test_qkv_is_split_into_views():
  arrays = {'blocks.0.attn.qkv.weight': np.zeros((96, 32), np.float32)}
  split = timm_names.split_qkv(arrays)
  assert all(
    np.shares_memory(x, arrays['blocks.0.attn.qkv.weight'])
    for x in split.values()
  )


@pytest.mark.parametrize('name', ['timm_vit', 'hf_vit'])
def test_equals_the_living_libraries(tmp_path, name):
  """Runs only where PyTorch and these libraries are installed."""
  torch = pytest.importorskip('torch')
  library = pytest.importorskip(
    'timm' if name == 'timm_vit' else 'transformers'
  )
  weights = random_weights(GOLDEN_CONFIG)
  if name == 'timm_vit':
    convert.convert(weights, str(tmp_path / 'x'), 'timm')
    model = library.create_model(f'local-dir:{tmp_path}/x', pretrained=True)
    forward = model.eval()
  else:
    convert.convert(weights, str(tmp_path / 'x'), 'huggingface')
    model = library.ViTForImageClassification.from_pretrained(tmp_path / 'x')
    forward = lambda x: model.eval()(x).logits
  images = np.random.default_rng(1).uniform(-1, 1, (2, 64, 64, 3))
  images = images.astype(np.float32)
  with torch.no_grad():
    want = forward(torch.tensor(images.transpose(0, 3, 1, 2))).numpy()
  np.testing.assert_allclose(outputs(weights, images), want, atol=1e-5)
