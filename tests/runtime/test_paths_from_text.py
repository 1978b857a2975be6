"""Only `storage` makes paths of text, so that addresses stay addresses."""

import ast

from golden_files import REPOSITORY

# Methods and attributes of a path that look at its text alone.
_OF_TEXT = ('name', 'parts', 'stem', 'suffix')
# Names of temporary folders, by file. They are always local paths.
_OURS = {'runtime/files.py': ('name',)}


def _paths_made(path):
  """Yields (line, source) where a file makes a path of text, or opens one."""
  tree = ast.parse(path.read_text())
  parents = {c: p for p in ast.walk(tree) for c in ast.iter_child_nodes(p)}
  for node in ast.walk(tree):
    if not isinstance(node, ast.Call) or not node.args:
      continue
    called, first = ast.unparse(node.func), node.args[0]
    parent = parents[node]
    if isinstance(parent, ast.Attribute) and parent.attr in _OF_TEXT:
      continue
    is_ours = (
      isinstance(first, ast.Constant)
      or ast.unparse(first)
      in (
        '__file__',
        'vit_jax.__file__',
        '_KERNEL',
        'temporary',
        'tempfile.mkdtemp()',
      )
      or (isinstance(first, ast.Name) and first.id in _ours(path))
    )
    if called in ('pathlib.Path', 'Path', 'os.makedirs', 'os.mkdir'):
      if not is_ours:
        yield f'{path.name}:{node.lineno}: {ast.unparse(node)}'
    elif called == 'open' and _is_text(first, node, parents):
      yield f'{path.name}:{node.lineno}: {ast.unparse(node)}'


def _ours(path):
  return _OURS.get(path.relative_to(REPOSITORY / 'vit_jax').as_posix(), ())


def _is_text(argument, node, parents):
  """Whether what is opened is a flag, a setting or an argument of type str."""
  if isinstance(argument, ast.Attribute):
    root = ast.unparse(argument).split('.')[0]
    return root in ('options', 'flags', 'config')
  while not isinstance(node, ast.FunctionDef | ast.Module):
    node = parents[node]
  if isinstance(node, ast.Module):
    return False
  types = {
    a.arg: ast.unparse(a.annotation)
    for a in [*node.args.args, *node.args.kwonlyargs]
    if a.annotation
  }
  return 'str' in types.get(ast.unparse(argument), '')


def test_paths_are_made_of_text_by_storage_alone():
  """Else an address becomes a folder named `gs:` below the current one."""
  package = REPOSITORY / 'vit_jax'
  found = [
    place
    for path in sorted(package.rglob('*.py'))
    if path != package / 'runtime' / 'storage.py'
    for place in _paths_made(path)
  ]
  assert not found, 'use storage.as_path or storage.local_path'
