"""Imports point one way, have no side effects, and need no TensorFlow."""

import ast
import subprocess
import sys

from conftest import REPOSITORY

PACKAGE = REPOSITORY / 'vit_jax'

# Each may import what stands in the lines above its own, see README.
LEVELS = (
  ('official',),
  ('vit_jax',),
  ('errors', 'exits'),
  ('storage', 'command'),
  (
    'configs.models',
    'configs.arguments',
    'configs.choices',
    'configs.durations',
    'configs',
    'data',
    'preemption',
    'profiler',
    'compilation_cache',
    'huge_pages',
    'attention_maps',
    'scores',
    'environment',
  ),
  ('configs.images', 'configs.unused'),
  (
    'download',
    'registry',
    'configs.validate',
    'interop',
    'interop.kinds',
  ),
  (
    'plot',
    'interop.files',
    'cli',
    'configs.common',
    'configs.resolved',
    'state',
  ),
  (
    'configs.vit',
    'configs.augreg',
    'configs.mixer_base16_cifar10',
    'configs.inference_time',
  ),
  ('released', 'models_list', 'hosts', 'preprocessing'),
  (
    'data.windows',
    'data.randaugment',
    'data.color_jitter',
    'data.mixing',
  ),
  (
    'data.transforms',
    'data.augment',
    'data.cifar',
    'data.prepare',
    'data.text',
  ),
  ('data.splits', 'data.image_files'),
  ('data.folder',),
  ('data.sources',),
  (
    'workdir',
    'data.pipeline',
    'data.stand_in',
    'data.subsets',
    'data.inputs',
    'data.real_labels',
  ),
  ('data.captions',),
  ('sharding',),
  ('data.dataset',),
  ('models.resnet', 'models.bert', 'models.layers', 'models.blocks'),
  ('models.positions', 'loggers'),
  ('models.vit', 'models.mixer'),
  ('models.capture',),
  ('models.lit',),
  ('models',),
  ('models_vit', 'models_mixer', 'models_resnet', 'models_lit'),
  (
    'flops',
    'freeze',
    'weights',
    'losses',
    'optim',
    'metrics',
    'inference',
    'attention_choice',
  ),
  ('interop.infer', 'interop.extras', 'update', 'hlo', 'memory'),
  ('interop.npz', 'interop.torch_layout', 'interop.orbax'),
  ('interop.timm_names', 'interop.huggingface'),
  ('interop.timm', 'interop.to_huggingface'),
  ('interop.to_timm',),
  ('artifact', 'adaptation'),
  ('interop.sniff',),
  ('checkpoint',),
  ('lit_weights', 'retrieval'),
  ('predictor',),
  ('predictor_flags',),
  ('build', 'defaults', 'predict', 'convert', 'inference_time'),
  (
    'probes',
    'zero_shot',
    'stages',
    'show_batch',
    'features',
    'attention',
    'export',
  ),
  ('curves', 'demo'),
  ('evaluation', 'evaluate'),
  ('report', 'start'),
  ('loop',),
  ('train',),
  ('contrastive',),
  ('main', 'ahead', 'doctor'),
  ('fit', 'sweep', 'record_result'),
  ('check_result',),
  ('plan_table',),
  ('plan',),
  ('command',),
  ('__main__',),
)


def module_names():
  names = {}
  for path in PACKAGE.rglob('*.py'):
    parts = path.relative_to(REPOSITORY).with_suffix('').parts
    if parts[-1] == '__init__':
      parts = parts[:-1]
    names['.'.join(parts)] = path
  return names


MODULES = module_names()


def imports(path):
  """Yields the modules of the package that a file imports."""
  for node in ast.walk(ast.parse(path.read_text())):
    if isinstance(node, ast.Import):
      names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
      names = [
        full if (full := f'{node.module}.{alias.name}') in MODULES
        else node.module
        for alias in node.names
      ]  # fmt: skip
    else:
      continue
    yield from (name for name in names if name.split('.')[0] == 'vit_jax')


def test_imports_point_one_way():
  level = {
    name if name == 'vit_jax' else f'vit_jax.{name}': i
    for i, names in enumerate(LEVELS)
    for name in names
  }
  assert set(level) == set(MODULES)
  wrong = [
    f'{name} imports {other}'
    for name, path in MODULES.items()
    for other in imports(path)
    if level[other] >= level[name]
  ]
  assert not wrong


def test_importing_needs_no_tensorflow_or_torch_and_starts_nothing():
  code = f"""
import importlib, sys
class Block:
  def find_spec(self, name, path=None, target=None):
    if name.split('.')[0] in ('tensorflow', 'torch'):
      raise ImportError(name)
sys.meta_path.insert(0, Block())
for name in {sorted(MODULES)!r}:
  importlib.import_module(name)
from absl import flags
from jax._src import xla_bridge
assert not xla_bridge.backends_are_initialized()
assert not flags.FLAGS.is_parsed()
from vit_jax.data import sources
sources.get_source('digits', 'train')
"""
  subprocess.run([sys.executable, '-c', code], check=True, cwd=REPOSITORY)


def test_files_and_functions_are_short():
  long = []
  for path in [*PACKAGE.rglob('*.py'), *(REPOSITORY / 'configs').glob('*.py')]:
    text = path.read_text()
    if text.count('\n') > 320:
      long.append(path.name)
    for node in ast.walk(ast.parse(text)):
      if isinstance(node, ast.FunctionDef):
        lines = node.end_lineno - node.lineno + 1
        if lines > 65:
          long.append(f'{path.name}: {node.name} has {lines} lines')
  assert not long
