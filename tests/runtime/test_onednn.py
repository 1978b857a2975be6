"""oneDNN multiplies where it was measured to be faster, and in the runs that began so."""

import importlib.metadata
import json
import os
import sys

import jax
import numpy as np
from processes import start_command
import pytest
from runs import tiny

from vit_jax.commands import train as train_command
from vit_jax.models import arithmetic
from vit_jax.runtime import errors
from vit_jax.runtime import exits
from vit_jax.runtime import files
from vit_jax.runtime import onednn
from vit_jax.runtime import processor
from vit_jax.runtime import workdir as workdir_lib
from vit_jax.training import resolve

FLAG = '--xla_cpu_experimental_onednn_custom_call=true'


@pytest.fixture
def able(monkeypatch):
  """A process before JAX, with a jaxlib and a processor that can."""
  version = lambda name: {'jaxlib': '0.12.0'}.get(name, '1.0')
  monkeypatch.setattr(importlib.metadata, 'version', version)
  monkeypatch.setattr(processor, 'units', lambda: frozenset({'avx512_bf16'}))
  monkeypatch.delitem(sys.modules, 'jax')
  monkeypatch.setenv('XLA_FLAGS', '--xla_a=1')
  monkeypatch.delenv(onednn.VARIABLE, raising=False)


@pytest.mark.parametrize(
  ('speeds', 'used'),
  [
    ({'xla': 100.0, 'onednn': 160.0}, True),
    ({'xla': 100.0, 'onednn': 105.0}, False),
    ({'xla': 100.0, 'onednn': 0.0}, False),
  ],
)
def test_the_faster_is_taken_and_remembered(
  speeds, used, able, monkeypatch, tmp_path
):
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
  asked = []

  def speed(by_onednn):
    asked.append(by_onednn)
    return speeds['onednn' if by_onednn else 'xla']

  monkeypatch.setattr(onednn, '_speed', speed)
  onednn.use()
  assert onednn.is_used() == used
  assert os.environ['XLA_FLAGS'].startswith('--xla_a=1')
  monkeypatch.setenv('XLA_FLAGS', '')
  onednn.use()
  assert onednn.is_used() == used
  assert asked == [False, True]
  [file] = (tmp_path / 'vit_jax').iterdir()
  assert json.loads(file.read_text()) == speeds


def test_the_variable_decides_without_measuring(able, monkeypatch):
  monkeypatch.setattr(onednn, '_speed', None)
  monkeypatch.setenv(onednn.VARIABLE, '0')
  onednn.use()
  assert not onednn.is_used()
  monkeypatch.setenv(onednn.VARIABLE, '1')
  onednn.use()
  assert onednn.products() == 'onednn'
  assert FLAG in os.environ['XLA_FLAGS']


@pytest.mark.parametrize('missing', ['jaxlib', 'units', 'cpu', 'start'])
def test_where_it_cannot_be_nothing_changes(missing, able, monkeypatch):
  monkeypatch.setenv(onednn.VARIABLE, '1')
  if missing == 'jaxlib':
    monkeypatch.setattr(importlib.metadata, 'version', lambda name: '0.11.2')
  if missing == 'units':
    monkeypatch.setattr(processor, 'units', lambda: frozenset({'avx2'}))
  if missing == 'cpu':
    monkeypatch.setenv('JAX_PLATFORMS', 'cuda,cpu')
  if missing == 'start':  # JAX has read its flags.
    monkeypatch.setitem(sys.modules, 'jax', jax)
  onednn.use()
  assert not onednn.is_used()


def test_a_probe_multiplies_in_a_process_of_its_own():
  assert onednn._speed(by_onednn=False) > 0


def test_a_probe_that_fails_is_never_the_faster_one(monkeypatch):
  monkeypatch.setattr(onednn, '_PROBE', 'raise SystemExit(1)')
  assert onednn._speed(by_onednn=True) == 0


def test_environment_adds_and_removes_its_flags_alone(monkeypatch):
  monkeypatch.setenv('XLA_FLAGS', '--xla_a=1')
  with_flags = onednn.environment(True)
  assert with_flags['XLA_FLAGS'].split()[0] == '--xla_a=1'
  assert FLAG in with_flags['XLA_FLAGS']
  monkeypatch.setenv('XLA_FLAGS', with_flags['XLA_FLAGS'])
  assert onednn.environment(False)['XLA_FLAGS'] == '--xla_a=1'


def test_models_take_the_policy_of_the_flags(monkeypatch):
  assert arithmetic.policy('bfloat16').results == 'float32'
  monkeypatch.setenv('XLA_FLAGS', onednn.environment(True)['XLA_FLAGS'])
  how = arithmetic.policy('bfloat16')
  assert (how.results, how.activations) == ('bfloat16', 'bfloat16')
  assert arithmetic.policy('float32').results == 'float32'
  with arithmetic.compiling_for('tpu'):
    assert arithmetic.policy('bfloat16').results == 'float32'


@pytest.mark.parametrize(
  'spec',
  ['bmk,kf->bmf', 'blk,kd->bld', 'blnh,bmnh->bnlm', 'bnlm,bmnh->blnh'],
)
def test_products_and_their_derivatives_equal_those_of_numpy(spec):
  sizes = dict(zip('bmkflndh', range(2, 10), strict=True))
  rng = np.random.default_rng(0)
  inputs, output = spec.split('->')
  x, y = (
    rng.normal(size=[sizes[a] for a in part]).astype('float32')
    for part in inputs.split(',')
  )
  weights = rng.normal(size=[sizes[a] for a in output]).astype('float32')
  policy = arithmetic.Policy(results='bfloat16')
  got, vjp = jax.vjp(lambda x, y: arithmetic.einsum(spec, x, y, policy), x, y)
  first, second = inputs.split(',')
  want = (
    np.einsum(spec, x, y),
    np.einsum(f'{output},{second}->{first}', weights, y),
    np.einsum(f'{first},{output}->{second}', x, weights),
  )
  gradients = vjp(weights.astype(got.dtype))
  for a, b in zip((got, *gradients), want, strict=True):
    assert a.shape == b.shape
    np.testing.assert_allclose(a, b, atol=0.02 * np.abs(b).max())


@pytest.fixture
def config(image_folder):
  config = tiny(image_folder)
  config.dtype = 'bfloat16'
  return config


def begun(tmp_path, products):
  workdir = workdir_lib.at(str(tmp_path / 'run'))
  workdir.folder.mkdir()
  files.write_json({'cpu_products': products, 'pp': {}}, workdir.config)
  return workdir


def test_a_run_records_how_it_multiplies(config):
  assert resolve.resolve(config).config.cpu_products == 'xla'
  config.cpu_products = 'onednn'
  message = (
    "config.cpu_products is 'onednn', but this process started with 'xla'"
  )
  with pytest.raises(errors.UserError, match=message):
    resolve.resolve(config)


def test_a_run_resumes_as_it_began_or_says_so(
  config, tmp_path, monkeypatch, caplog
):
  workdir = begun(tmp_path, 'onednn')
  monkeypatch.setattr(onednn, 'is_possible', lambda: True)
  with pytest.raises(
    errors.UserError, match='Start Python with VIT_JAX_ONEDNN=1'
  ):
    resolve.resolve(config, begun=workdir)
  monkeypatch.setattr(onednn, 'is_possible', lambda: False)
  run = resolve.resolve(config, begun=workdir)
  assert run.config.cpu_products == 'xla'
  assert 'This run used oneDNN so far' in caplog.text


@pytest.mark.parametrize('is_possible', [True, False])
def test_a_run_that_did_not_multiply_so_yet_takes_what_is_here(
  is_possible, config, tmp_path, monkeypatch, caplog
):
  """As one of a GPU, or in float32, that is evaluated on a CPU."""
  monkeypatch.setattr(onednn, 'is_possible', lambda: is_possible)
  run = resolve.resolve(config, begun=begun(tmp_path, 'auto'))
  assert run.config.cpu_products == 'xla'
  assert 'This run used oneDNN so far' not in caplog.text


@pytest.mark.parametrize(
  ('setting', 'saved', 'restarts'),
  [
    ('auto', 'auto', False),
    ('auto', 'onednn', True),
    ('auto', 'xla', False),
    ('onednn', 'xla', True),
    ('xla', 'onednn', False),
  ],
)
def test_commands_start_again_to_multiply_as_before(
  setting, saved, restarts, config, tmp_path, monkeypatch
):
  found = []
  monkeypatch.setattr(exits, 'restart', found.append)
  monkeypatch.setattr(onednn, 'is_possible', lambda: True)
  config.cpu_products = setting
  workdir = begun(tmp_path, saved)
  train_command._multiply_as_before(config, workdir)
  assert len(found) == restarts
  if restarts:
    assert FLAG in found[0]['XLA_FLAGS']
    assert found[0][onednn.VARIABLE] == '1'
  config.dtype = 'float32'
  found.clear()
  train_command._multiply_as_before(config, workdir)
  assert not found


needs_onednn = pytest.mark.skipif(
  not onednn.is_possible(), reason='Needs jax 0.12 and bfloat16 products.'
)


@pytest.mark.slow
@needs_onednn
def test_sums_stay_fast_where_onednn_multiplies():
  """XLA's own sums of tokens are windows of 32, up to 30 times slower."""
  code = (
    'from vit_jax.runtime import onednn\n'
    'onednn.use()\n'
    'import jax\n'
    "x = jax.ShapeDtypeStruct((256, 64, 192), 'float32')\n"
    'print(jax.jit(lambda x: x.sum((0, 1))).lower(x).compile().as_text())'
  )
  process = start_command(sys.executable, '-c', code, VIT_JAX_ONEDNN='1')
  program, err = process.communicate()
  assert process.returncode == 0, err
  assert 'ynn_fusion' in program
  assert 'reduce-window' not in program


@pytest.mark.slow
@needs_onednn
def test_a_run_by_onednn_multiplies_by_onednn(tmp_path):
  process = start_command(
    sys.executable,
    '-m',
    'vit_jax',
    'train',
    '--config=configs/digits.py',
    f'--workdir={tmp_path}/run',
    '--config.dtype=bfloat16',
    '--config.total_steps=2',
    '--config.warmup_steps=0',
    '--config.report=False',
    ONEDNN_VERBOSE='1',
    VIT_JAX_ONEDNN='1',
  )
  out, err = process.communicate()
  assert process.returncode == 0, err
  assert 'Matrix products in bfloat16: onednn.' in err
  assert ',matmul,' in out
  assert 'compilation cache' not in err
  saved = files.read_json(workdir_lib.at(f'{tmp_path}/run').config)
  assert saved['cpu_products'] == 'onednn'
