"""Programs for other runtimes equal the model, for any batch."""

import dataclasses
import json

from golden_files import GOLDEN
import jax
import numpy as np
from pictures import picture
from processes import call_command
import pytest

import vit_jax
from vit_jax import checkpoint
from vit_jax.runtime import errors
from vit_jax.weights import programs

NAMES = ('vit_token', 'vit_gap', 'hybrid_r_stem', 'mixer', 'resnet_only_gap')


def reader(path):
  if path.suffix == '.stablehlo':
    exported = jax.export.deserialize(bytearray(path.read_bytes()))
    return exported.call
  onnxruntime = pytest.importorskip('onnxruntime')
  session = onnxruntime.InferenceSession(path)
  return lambda pixels: session.run(None, {'pixels': pixels})[0]


@pytest.fixture(scope='module')
def stablehlo(tmp_path_factory):
  """A program of vit_token."""
  path = tmp_path_factory.mktemp('program') / 'new' / 'x.stablehlo'
  weights = checkpoint.read(GOLDEN / 'vit_token.npz')
  assert programs.export(weights, str(path)) < 1e-4
  assert [p.name for p in path.parent.iterdir()] == [path.name]
  return path


@pytest.mark.parametrize('name', NAMES)
@pytest.mark.parametrize('suffix', ['.stablehlo', '.onnx'])
def test_programs_equal_the_model(name, suffix, tmp_path, stablehlo):
  if suffix == '.onnx':
    pytest.importorskip('jax2onnx')
  size = (64, 64) if name.startswith('resnet') else None
  predictor = vit_jax.load(GOLDEN / f'{name}.npz', size=size)
  path = stablehlo
  if (name, suffix) != ('vit_token', '.stablehlo'):
    path = tmp_path / 'new' / f'x{suffix}'
    assert programs.export(predictor.weights, str(path)) < 1e-4
    assert [p.name for p in path.parent.iterdir()] == [path.name]
  call = reader(path)
  size = predictor.weights.image_shape[:2]
  rng = np.random.default_rng(0)
  images = rng.integers(0, 256, (5, *size, 3), np.uint8)
  want = np.stack([row for _, row in predictor.probabilities(images)])
  for count in (1, 5):
    logits = call(images[:count].astype(np.float32))
    np.testing.assert_allclose(
      jax.nn.softmax(logits), want[:count], rtol=1e-4, atol=1e-5
    )


def test_models_in_bfloat16_and_without_a_head(tmp_path):
  weights = vit_jax.load(GOLDEN / 'hf_vit_model').weights
  model = {**weights.model, 'dtype': 'bfloat16'}
  weights = dataclasses.replace(weights, model=model)
  path = tmp_path / 'x.stablehlo'
  programs.export(weights, str(path))
  image = picture(0, *weights.image_shape[:2])
  got = reader(path)(image[None].astype(np.float32))
  want = vit_jax.load(GOLDEN / 'hf_vit_model').features(image)
  np.testing.assert_allclose(got, want, atol=1e-4)


def test_programs_are_for_all_platforms(stablehlo):
  data = bytearray(stablehlo.read_bytes())
  platforms = jax.export.deserialize(data).platforms
  assert set(platforms) == {'cpu', 'cuda', 'rocm', 'tpu'}


def test_onnx_metadata_has_labels(tmp_path):
  onnx = pytest.importorskip('onnx')
  pytest.importorskip('jax2onnx')
  weights = dataclasses.replace(
    checkpoint.read(GOLDEN / 'vit_token.npz'),
    task='multilabel',
    loss='sigmoid',
    thresholds=[0.25] * 7,
  )
  programs.export(weights, str(tmp_path / 'x.onnx'))
  model = onnx.load(tmp_path / 'x.onnx')
  notes = {p.key: json.loads(p.value) for p in model.metadata_props}
  assert notes['labels'] == list(weights.class_names)
  assert notes['image_shape'] == list(weights.image_shape)
  assert (notes['task'], notes['loss']) == ('multilabel', 'sigmoid')
  assert notes['thresholds'] == weights.thresholds


def test_wrong_program_is_not_written(tmp_path, monkeypatch):
  weights = checkpoint.read(GOLDEN / 'vit_token.npz')
  wrong = lambda *args: lambda pixels: np.zeros((3, 7), np.float32)
  monkeypatch.setattr(programs, '_write_stablehlo', wrong)
  with pytest.raises(errors.UserError, match='differ from those of the model'):
    programs.export(weights, str(tmp_path / 'x.stablehlo'))
  assert not list(tmp_path.iterdir())


def test_a_head_of_zeros_is_not_exported(tmp_path):
  weights = checkpoint.read(GOLDEN / 'vit_token.npz')
  zeros = jax.tree.map(np.zeros_like, weights.params['head'])
  weights = dataclasses.replace(
    weights, params=weights.params | {'head': zeros}
  )
  with pytest.raises(errors.UserError, match='head of these weights is all ze'):
    programs.export(weights, str(tmp_path / 'x.stablehlo'))
  assert not list(tmp_path.iterdir())


def test_export_names_failure_of_jax2onnx(tmp_path, monkeypatch):
  jax2onnx = pytest.importorskip('jax2onnx')

  def fail(*args, **kwargs):
    raise AttributeError('no ClosedJaxpr\nmore')

  monkeypatch.setattr(jax2onnx, 'to_onnx', fail)
  weights = checkpoint.read(GOLDEN / 'vit_token.npz')
  message = r'cannot convert .* \(AttributeError: no ClosedJaxpr\)'
  with pytest.raises(errors.UserError, match=message):
    programs.export(weights, str(tmp_path / 'x.onnx'))
  assert not list(tmp_path.iterdir())


def test_flags_of_the_data_set_need_one(tmp_path):
  words = ['--model=ViT-Mini_8', f'--output={tmp_path / "x.stablehlo"}']
  result = call_command('export', *words, '--tolerance=0.5')
  assert result.returncode == 1
  assert '--tolerance is for --dataset, which is not given.' in result.stderr


def test_export_refuses_wrong_output(tmp_path):
  (tmp_path / 'x.stablehlo').write_text('old')
  weights = checkpoint.read(GOLDEN / 'vit_token.npz')
  for output, message in (
    ('x.pb', 'must end in .onnx or .stablehlo'),
    ('x.stablehlo/y.stablehlo', 'cannot be written'),
  ):
    with pytest.raises(errors.UserError, match=message):
      programs.export(weights, str(tmp_path / output))
  result = call_command(
    'export',
    f'--model={GOLDEN}/vit_token.npz',
    f'--output={tmp_path}/x.stablehlo',
  )
  assert result.returncode == 1
  assert 'exists. Delete it' in result.stderr
  assert 'Traceback' not in result.stderr
  assert (tmp_path / 'x.stablehlo').read_text() == 'old'
