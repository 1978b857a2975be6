"""Imports point one way, have no side effects, and need no TensorFlow."""

import ast
import graphlib
import re
import subprocess
import sys

from golden_files import REPOSITORY

from vit_jax.commands import dispatch

PACKAGE = REPOSITORY / 'vit_jax'

# From the ground up: each may import what stands before it, and its own row.
ROWS = (
  ('runtime',),
  ('configs', 'data'),
  ('models', 'models_vit', 'models_mixer', 'models_resnet', 'models_lit'),
  ('weights', 'checkpoint'),
  ('evaluation',),
  ('training',),
  ('predictor', 'zero_shot', 'inference_time'),
  ('reporting',),
  ('train', 'runs', 'sweep', 'folds'),
  ('planning',),
  ('commands', 'main', '__main__'),
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


def top(module):
  """Returns the package or module directly in `vit_jax` that a module is in."""
  return module.split('.')[1]


def test_packages_import_downwards():
  row = {name: i for i, names in enumerate(ROWS) for name in names}
  modules = {n: path for n, path in MODULES.items() if n != 'vit_jax'}
  assert {top(name) for name in modules} == set(row)
  wrong = [
    f'{name} imports {other}'
    for name, path in modules.items()
    for other in imports(path)
    if other != 'vit_jax' and row[top(other)] > row[top(name)]
  ]
  assert not wrong


def imports_at_once(path):
  """Yields the modules of the package that a file imports when it is imported."""
  for node in ast.parse(path.read_text()).body:
    if isinstance(node, ast.ImportFrom):
      for alias in node.names:
        full = f'{node.module}.{alias.name}'
        yield full if full in MODULES else node.module


def test_no_module_imports_itself_by_way_of_others():
  """Such a module fails or not, depending on which one a program imports first."""
  graph = {
    name: sorted({x for x in imports_at_once(path) if x in MODULES} - {name})
    for name, path in MODULES.items()
  }
  # A package's own module may import its parts, which name it in full.
  graph = {
    name: [x for x in others if not name.startswith(f'{x}.')]
    for name, others in graph.items()
  }
  sorter = graphlib.TopologicalSorter(graph)
  sorter.prepare()  # Raises CycleError, which names the modules.


def exports(package):
  """Returns the names in the `__all__` of a package."""
  for node in ast.parse(MODULES[package].read_text()).body:
    if isinstance(node, ast.Assign) and ast.unparse(node.targets) == '__all__':
      return ast.literal_eval(node.value)
  return ()


def borders(name, others):
  """Yields (package, member) where a module imports from a package it is not in.

  `vit_jax.train` crosses two borders to `vit_jax.data.rows.tables`: that of
  `vit_jax.data`, to its member `rows`, and that of `vit_jax.data.rows`.
  """
  for other in others:
    parts = other.split('.')
    for i in range(2, len(parts)):
      package = '.'.join(parts[:i])
      if not f'{name}.'.startswith(f'{package}.'):
        yield package, parts[i]


def test_packages_export_what_others_import_and_no_more():
  rows = ['vit_jax.data.rows.tables']
  assert [*borders('vit_jax.train', rows)] == [
    ('vit_jax.data', 'rows'),
    ('vit_jax.data.rows', 'tables'),
  ]
  assert [*borders('vit_jax.data.rows.shards', rows)] == []
  used = {b for name, p in MODULES.items() for b in borders(name, imports(p))}
  exported = {
    (package, name)
    for package in MODULES
    if package.count('.')
    for name in exports(package)
    if f'{package}.{name}' in MODULES
  }
  assert used == exported


def taken_from_packages():
  """Yields (package, name) where a module uses what a package itself defines."""
  for path in MODULES.values():
    tree = ast.parse(path.read_text())
    packages = {
      alias.asname or alias.name: f'{node.module}.{alias.name}'
      for node in ast.walk(tree)
      if isinstance(node, ast.ImportFrom)
      for alias in node.names
      if f'{node.module}.{alias.name}' in MODULES
    }
    for node in ast.walk(tree):
      if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        package = packages.get(node.value.id)
        if package and MODULES[package].name == '__init__.py':
          yield package, node.attr


def test_packages_export_every_function_that_others_take_from_them():
  taken = {*taken_from_packages()}
  assert ('vit_jax.models', 'abstract_params') in taken
  assert not [
    (package, name)
    for package, name in taken
    if name not in exports(package) and not name.startswith('__')
  ]


def test_few_modules_and_packages_lie_directly_in_the_package():
  top = [name for name in MODULES if name.count('.') == 1]
  packages = [name for name in top if MODULES[name].name == '__init__.py']
  assert len(packages) <= 10
  assert len(top) - len(packages) < 15  # And `vit_jax` itself.


def test_packages_say_what_their_files_are_for():
  missing = [
    name
    for name, path in MODULES.items()
    if name.count('.') >= 2
    and name not in {f'vit_jax.commands.{c}' for c in dispatch.COMMANDS}
    and not re.search(
      rf'^ *{name.rpartition(".")[2]} ',
      MODULES[name.rpartition('.')[0]].read_text(),
      re.M,
    )
  ]
  assert not missing


def test_commands_alone_touch_flags():
  users = {
    top(name)
    for name, path in MODULES.items()
    if re.search(r'^from absl import (app|flags)$', path.read_text(), re.M)
  }
  assert users == {'commands'}


def private_names_of_others(path):
  """Yields (line, source) where a file uses a private name of another module."""
  tree, others = ast.parse(path.read_text()), set()
  for node in ast.walk(tree):
    if isinstance(node, ast.ImportFrom) and is_ours(node.module):
      others |= {alias.asname or alias.name for alias in node.names}
      names = [a.name for a in node.names if a.name.startswith('_')]
      yield from (f'{path.name}:{node.lineno}: {name}' for name in names)
    elif isinstance(node, ast.Import):
      others |= {alias.name for alias in node.names if is_ours(alias.name)}
  for node in ast.walk(tree):
    if not isinstance(node, ast.Attribute) or node.attr.startswith('__'):
      continue
    if node.attr.startswith('_') and ast.unparse(node.value) in others:
      yield f'{path.name}:{node.lineno}: {ast.unparse(node)}'


def is_ours(module):
  return module.split('.')[0] in ('vit_jax', 'tools', 'benchmarks')


def test_private_names_stay_in_their_module(tmp_path):
  wrong = tmp_path / 'wrong.py'
  wrong.write_text(
    'from vit_jax.data import folder\nfrom vit_jax.data.folder import _some\n'
    'import vit_jax.data\nfolder._some(vit_jax.data._x, folder.__doc__)'
  )
  assert len(list(private_names_of_others(wrong))) == 3
  files = [
    path
    for name in ('vit_jax', 'tools', 'benchmarks', 'configs')
    for path in (REPOSITORY / name).rglob('*.py')
  ]
  assert not [
    place for path in files for place in private_names_of_others(path)
  ]


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
