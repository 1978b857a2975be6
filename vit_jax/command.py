"""`vit-jax COMMAND ...`, the same as `python -m vit_jax.COMMAND ...`.

It imports nothing but what the command needs, so that completion is quick:
  source <(vit-jax --completion=bash)   or zsh; fish: vit-jax --completion=fish | source
"""

import ast
import difflib
import pathlib
import re
import runpy
import sys

from vit_jax import exits

_FOLDER = pathlib.Path(__file__).parent

_MODULES = {'train': 'main', 'prepare': 'data.prepare'}  # Where names differ.

COMMANDS = (
  'train',
  'evaluate',
  'predict',
  'features',
  'attention',
  'zero_shot',
  'convert',
  'export',
  'report',
  'demo',
  'sweep',
  'plan',
  'doctor',
  'show_batch',
  'models_list',
  'prepare',
  'record_result',
  'check_result',
)

_BASH = """\
_vit_jax() {
  local words="$(vit-jax --complete "${COMP_WORDS[1]}")"
  [ "$COMP_CWORD" = 1 ] && words="$(vit-jax --complete)"
  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -o nospace -F _vit_jax vit-jax
"""

_COMPLETIONS = {
  'bash': _BASH,
  'zsh': (
    '(( $+functions[compdef] )) || { autoload -U compinit && compinit; }\n'
    f'autoload -U +X bashcompinit && bashcompinit\n{_BASH}'
  ),
  'fish': (
    'complete -c vit-jax -n "test (count (commandline -opc)) -lt 2" -f'
    ' -a "(vit-jax --complete)"\n'
    'complete -c vit-jax -n "test (count (commandline -opc)) -ge 2"'
    ' -a "(vit-jax --complete (commandline -opc)[2])"\n'
  ),
}


def _path(command: str) -> pathlib.Path:
  name = _MODULES.get(command, command)
  return (_FOLDER / name.replace('.', '/')).with_suffix('.py')


def summary(command: str) -> str:
  """Returns the first line of a command's docstring."""
  return (ast.get_docstring(_tree(_path(command))) or '').split('\n')[0]


def flag_names(command: str) -> list[str]:
  """Returns the flags of a command, and the settings where it takes a config.

  They are read from the source: importing takes seconds.
  """
  names = sorted(_defined(_tree(_path(command))))
  if 'config' in names:
    names += _settings('common.py', 'config', 'config')
    names += _settings('images.py', 'pp', 'config.pp')
  return [f'--{name}=' for name in names]


def _tree(path: pathlib.Path) -> ast.Module:
  return ast.parse(path.read_text(encoding='utf-8'))


def _defined(tree: ast.AST) -> set[str]:
  """Returns the flags that a file or a function defines, or lets define."""
  names = set()
  for node in ast.walk(tree):
    if isinstance(node, ast.ImportFrom) and node.names[0].name == 'main':
      names |= _defined(_tree(_path('train')))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
      called = node.func.attr
      if called.startswith('DEFINE_'):
        names.add(node.args[0].value)
      elif called.startswith('define_'):
        other = _tree(_FOLDER / f'{node.func.value.id}.py')
        names |= _defined(_function(other, called))
  return names


def _function(tree: ast.Module, name: str) -> ast.AST:
  """Returns a function, and those of the file that it calls."""
  functions = {
    node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)
  }
  found = [functions[name]]
  found += [
    _function(tree, node.func.id)
    for node in ast.walk(functions[name])
    if isinstance(node, ast.Call)
    and isinstance(node.func, ast.Name)
    and node.func.id in functions
  ]
  return ast.Module(found, [])


def _settings(file: str, variable: str, prefix: str) -> list[str]:
  text = (_FOLDER / 'configs' / file).read_text(encoding='utf-8')
  pattern = rf'^  {variable}\.([a-z]\w*) = '
  return [f'{prefix}.{x}' for x in re.findall(pattern, text, re.MULTILINE)]


def usage() -> str:
  """Returns what `--help` prints."""
  width = max(map(len, COMMANDS))
  rows = [f'  {name:{width}}  {summary(name)}' for name in COMMANDS]
  return '\n'.join(
    [
      'usage: vit-jax COMMAND ...',
      '',
      *rows,
      '',
      'vit-jax COMMAND --help tells its flags; --completion=bash, zsh or fish',
      'prints what makes the shell complete them.',
    ]
  )


def _answer(first: str, rest: list[str]) -> str:
  """Returns what is printed where no command is run; exits where it is none."""
  if first in ('--help', '-h', 'help'):
    return usage()
  if first == '--complete':
    is_command = rest and rest[0] in COMMANDS
    return '\n'.join(flag_names(rest[0]) if is_command else COMMANDS)
  shell = first.removeprefix('--completion=')
  if shell != first and shell in _COMPLETIONS:
    return _COMPLETIONS[shell]
  near = difflib.get_close_matches(first, COMMANDS, 1)
  hint = f' Did you mean {near[0]}?' if near else ''
  sys.exit(f'vit-jax: there is no command {first!r}.{hint} See vit-jax --help.')


def main() -> None:
  """Runs the command that the first argument names."""
  first, rest = (*sys.argv[1:2], '--help')[0], sys.argv[2:]
  if first not in COMMANDS:
    print(_answer(first, rest))
    return
  exits.on_interrupt()  # Before the imports, which take seconds.
  sys.argv = [sys.argv[0], *rest]
  name = _MODULES.get(first, first)
  runpy.run_module(f'vit_jax.{name}', run_name='__main__', alter_sys=True)


if __name__ == '__main__':
  main()
