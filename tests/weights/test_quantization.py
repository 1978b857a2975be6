"""Exported programs of fewer bits: what is in them, what they may cost."""

import collections
import re

import cv2
from golden_files import GOLDEN
import numpy as np
from pictures import picture
from processes import call_command
import pytest

import vit_jax
from vit_jax import checkpoint
from vit_jax.runtime import errors
from vit_jax.weights import programs
from vit_jax.weights import quantization
from vit_jax.weights import record

pytest.importorskip('jax2onnx')
onnx = pytest.importorskip('onnx')
onnxruntime = pytest.importorskip('onnxruntime')


WEIGHTS = 'ViT-Mini_8'


def operators(path):
  nodes = onnx.load(path).graph.node
  return collections.Counter(node.op_type for node in nodes)


def pixels(count):
  shape = checkpoint.read(WEIGHTS).input_shape()
  images = np.stack([picture(i, *shape[:2]) for i in range(count)])
  images[::2] = 255 - images[::2]  # Unlike enough to have several classes.
  images[::3] = images[::3, ..., ::-1]
  return images.astype(np.float32)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """Images in splits, labelled with what the model predicts for them."""
  root, model = tmp_path_factory.mktemp('images'), vit_jax.load(WEIGHTS)
  for i, image in enumerate(pixels(16).astype(np.uint8)):
    [[(label, _)]] = model.predict(image, top_k=1)
    for split in ('train', 'test'):
      path = root / split / label / f'{i}.png'
      path.parent.mkdir(parents=True, exist_ok=True)
      cv2.imwrite(str(path), image[..., ::-1])
  assert len(list((root / 'test').iterdir())) > 1
  return root


def export(output, *words):
  return call_command(
    'export', f'--model={WEIGHTS}', f'--output={output}', *words
  )


@pytest.mark.parametrize(
  'name', ['vit_token.npz', 'mixer.npz', 'siglip', 'hf_dinov3', 'timm_map']
)
def test_graphs_have_matmul_and_no_einsum(name, tmp_path):
  path = tmp_path / 'x.onnx'
  programs.export(checkpoint.read(GOLDEN / name), str(path))
  count = operators(path)
  assert count['Einsum'] == 0
  assert count['MatMul'] >= 4


def test_int8_quantises_products_with_parameters_alone(tmp_path):
  plain, small = tmp_path / 'plain.onnx', tmp_path / 'small.onnx'
  weights = checkpoint.read(WEIGHTS)
  programs.export(weights, str(plain))
  batches = np.split(pixels(8), 2)
  difference = programs.export(
    weights, str(small), precision='int8', calibration=batches
  )
  assert 1e-4 < difference < 0.5
  model = onnx.load(small)
  types = collections.Counter(x.data_type for x in model.graph.initializer)
  blocks = weights.model['transformer']['num_layers']
  # Six kernels a block (query, key, value, out, two of the MLP), patches, head.
  kernels = [
    x
    for x in model.graph.initializer
    if x.data_type == onnx.TensorProto.INT8 and len(x.dims) == 2
  ]
  assert len(kernels) == 6 * blocks + 2, types
  assert small.stat().st_size < plain.stat().st_size


def test_ranges_of_int8_come_from_the_images(tmp_path):
  weights, outputs = checkpoint.read(WEIGHTS), {}
  images = pixels(8)
  for name, scale in (('white', 1.0), ('black', 0.01)):
    path = tmp_path / f'{name}.onnx'
    programs.export(
      weights, str(path), precision='int8', calibration=[scale * images]
    )
    session = onnxruntime.InferenceSession(path)
    outputs[name] = session.run(None, {'pixels': images})[0]
  want = vit_jax.load(WEIGHTS).logits(images.astype(np.uint8))
  error = {k: np.abs(v - want).max() for k, v in outputs.items()}
  assert error['white'] < error['black']


@pytest.mark.parametrize('precision', ['float32', 'int8'])
def test_arrays_of_large_models_are_in_a_file_beside(
  precision, tmp_path, monkeypatch
):
  monkeypatch.setattr(quantization, '_MAX_BYTES', 2**20)
  path = tmp_path / 'x.onnx'
  programs.export(
    checkpoint.read(WEIGHTS),
    str(path),
    precision=precision,
    calibration=[pixels(8)],
  )
  [data] = (p for p in tmp_path.iterdir() if p != path)
  assert path.stat().st_size < 2**20 < data.stat().st_size


@pytest.mark.parametrize(
  ('precision', 'suffix', 'itemsize'),
  [('float16', '.onnx', 2), ('bfloat16', '.stablehlo', 2)],
)
def test_two_bytes_a_parameter(precision, suffix, itemsize, tmp_path):
  sizes = {}
  weights = checkpoint.read(WEIGHTS)
  for name in ('float32', precision):
    path = tmp_path / f'{name}{suffix}'
    difference = programs.export(weights, str(path), precision=name)
    sizes[name] = path.stat().st_size
  assert 1e-7 < difference < 2e-2
  count = sum(x.size for x in record.flatten(weights.params).values())
  saved = sizes['float32'] - sizes[precision]
  assert saved > 0.8 * itemsize * count


def test_command_prints_scores_of_model_and_program(folder, tmp_path):
  output = tmp_path / 'x.onnx'
  result = export(
    output, '--quantize=int8', f'--dataset={folder}', '--tolerance=1'
  )
  assert result.returncode == 0, result.stderr
  assert 'accuracy_test of the model: 1.0000' in result.stdout
  [score] = re.findall('of the program: (.*)', result.stdout)
  session = onnxruntime.InferenceSession(output)
  logits = session.run(None, {'pixels': pixels(16)})[0]
  want = vit_jax.load(WEIGHTS).logits(pixels(16).astype(np.uint8))
  same = np.mean(logits.argmax(-1) == want.argmax(-1))
  assert float(score) == pytest.approx(same, abs=1e-4)


def test_program_with_a_worse_score_is_not_written(
  folder, tmp_path, monkeypatch
):
  def shuffled(model, path, calibration):
    for x in model.graph.initializer:
      if x.data_type == onnx.TensorProto.FLOAT and len(x.dims) == 2:
        kernel = onnx.numpy_helper.to_array(x)[::-1]
        x.CopyFrom(onnx.numpy_helper.from_array(kernel.copy(), x.name))
    onnx.save(model, path)

  monkeypatch.setattr(quantization, 'write_int8', shuffled)
  result = export(tmp_path / 'x.onnx', '--quantize=int8', f'--dataset={folder}')
  assert result.returncode == 1
  assert 'was not written: its accuracy_test is' in result.stderr
  assert 'that of the model 1.0000, worse by more than' in result.stderr
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
  ('words', 'message'),
  [
    (['--quantize=int8'], '--quantize=int8 needs --dataset=FOLDER'),
    (['--quantize=bfloat16'], '.onnx files can have float32, float16, int8'),
  ],
)
def test_what_cannot_be_quantised_is_refused(words, message, tmp_path):
  result = export(tmp_path / 'x.onnx', *words)
  assert result.returncode == 1
  assert message in result.stderr
  assert not list(tmp_path.iterdir())


def test_stablehlo_refuses_int8(tmp_path):
  with pytest.raises(errors.UserError, match='can have float32, bfloat16'):
    programs.export(
      checkpoint.read(WEIGHTS), str(tmp_path / 'x.stablehlo'), precision='int8'
    )


def test_openvino_reads_what_is_exported(folder, tmp_path):
  openvino = pytest.importorskip('openvino')
  want = vit_jax.load(WEIGHTS).logits(pixels(4).astype(np.uint8))
  for precision, tolerance in (('float32', 1e-4), ('int8', 0.5)):
    path = tmp_path / f'{precision}.onnx'
    programs.export(
      checkpoint.read(WEIGHTS),
      str(path),
      precision=precision,
      calibration=[pixels(8)],
    )
    hints = {'INFERENCE_PRECISION_HINT': 'f32'}
    compiled = openvino.Core().compile_model(path, 'CPU', hints)
    got = compiled(pixels(4))[0]
    scale = np.abs(want).max()
    np.testing.assert_allclose(got, want, atol=tolerance * scale)
