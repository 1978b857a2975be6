"""`vit-jax COMMAND ...`, the same as `python -m vit_jax COMMAND ...`.

It imports only what the command needs. Shells complete commands, flags, settings:
  source <(vit-jax --completion=bash)   or zsh; fish: vit-jax --completion=fish | source
"""

import ast
import contextlib
import difflib
import hashlib
import importlib
import io
import json
import os
import pathlib
import sys
from typing import Any

import platformdirs

import vit_jax
from vit_jax.runtime import exits
from vit_jax.runtime import huge_pages
from vit_jax.runtime import onednn

_FOLDER = pathlib.Path(__file__).parent

# These restart Python for huge pages before they import anything else.
_LONG = ('train', 'sweep')

# These apply models to many images: it pays to measure products once.
_COMPUTES = (*_LONG, 'evaluate', 'predict', 'features', 'zero_shot')

COMMANDS = (
  'train',
  'evaluate',
  'predict',
  'features',
  'attention',
  'zero_shot',
  'convert',
  'export',
  'push',
  'report',
  'demo',
  'sweep',
  'plan',
  'doctor',
  'data',
  'show_batch',
  'models',
  'prepare',
)

# Bash splits words at '=' and replaces only the last part; zsh does neither.
_BASH = """\
_vit_jax() {
  local word="${COMP_WORDS[COMP_CWORD]}" before="" answers file
  if [ "$word" = "=" ]; then
    before="${COMP_WORDS[COMP_CWORD-1]}=" word=""
  elif [ "${COMP_WORDS[COMP_CWORD-1]}" = "=" ]; then
    before="${COMP_WORDS[COMP_CWORD-2]}="
  fi
  answers="$(vit-jax --complete "${COMP_WORDS[1]}" "$before$word")"
  [ "$COMP_CWORD" = 1 ] && answers="$(vit-jax --complete)"
  COMPREPLY=($(compgen -W "$answers" -- "$before$word"))
  case "$before$word" in --config=*)
    file="$before$word" file="${file#--config=}"
    COMPREPLY+=($(compgen -P --config= -d -S / -- "$file"))
    COMPREPLY+=($(compgen -P --config= -f -X '!*.py' -- "$file"))
  esac
  COMPREPLY=("${COMPREPLY[@]#"$before"}")
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
    ' -a "(vit-jax --complete (commandline -opc)[2] (commandline -ct))"\n'
  ),
}


def summary(command: str) -> str:
  """Returns the first line of a command's docstring, without importing it."""
  tree = ast.parse((_FOLDER / f'{command}.py').read_text(encoding='utf-8'))
  return (ast.get_docstring(tree) or '').split('\n')[0]


def completions(command: str, word: str = '') -> list[str]:
  """Returns the flags of a command; after `--FLAG=`, the flag with its values.

  Flags include the settings of run files if the command takes a run file.

  Importing it takes seconds, so they are kept in the user's cache until a file of
  the package changes.
  """
  path = platformdirs.user_cache_path('vit_jax') / 'completion.json'
  stats = [(str(p), p.stat()) for p in sorted(_FOLDER.parent.rglob('*.py'))]
  text = repr([(name, s.st_mtime_ns, s.st_size) for name, s in stats])
  code = hashlib.sha256(text.encode()).hexdigest()
  known: dict[str, Any] = {}
  with contextlib.suppress(OSError, ValueError, AttributeError):
    known = dict(json.loads(path.read_text(encoding='utf-8')).items())
  if known.get('code') != code:
    known = {'code': code}
  if command not in known:
    known[command] = _defined(command)
    with contextlib.suppress(OSError):  # Without a cache it is only slower.
      path.parent.mkdir(parents=True, exist_ok=True)
      temporary = path.with_name(f'{path.name}.{os.getpid()}')
      temporary.write_text(json.dumps(known), encoding='utf-8')
      temporary.replace(path)
  if word.startswith('--config=') and '--config=' in known[command]:
    from vit_jax.configs import run_files  # Imported late: it takes time.

    return [f'--config={name}' for name in run_files.names()]
  if '=' in word:
    flag = word[: word.index('=') + 1]
    return [w for w in known[command] if w.startswith(flag) and w != flag]
  return [w for w in known[command] if w.endswith('=') or '=' not in w]


def _defined(command: str) -> list[str]:
  """Returns the flags and values that a command prints, see `cli.run`, and settings."""
  out = io.StringIO()
  with contextlib.redirect_stdout(out):
    run(command, ['--complete'])
  names = out.getvalue().split()
  if '--config=' in names:
    from vit_jax.commands import setting_values  # Imported late: it takes time.

    names += [f'--config.{s}' for s in setting_values.completions(command)]
  return names


def usage() -> str:
  """Returns the text of `vit-jax --help`."""
  width = max(map(len, COMMANDS))
  rows = [f'  {name:{width}}  {summary(name)}' for name in COMMANDS]
  return '\n'.join(
    [
      'usage: vit-jax COMMAND ...',
      '',
      *rows,
      '',
      'vit-jax COMMAND --help prints its flags, vit-jax --version the version;',
      'vit-jax --completion=bash, zsh or fish prints a script for completion in',
      'that shell.',
    ]
  )


def _answer(first: str, rest: list[str]) -> str:
  """Returns the output where no command runs; exits at an unknown command."""
  if first in ('--help', '-h', 'help'):
    return usage()
  if first == '--version':
    return vit_jax.__version__
  if first == '--complete':
    is_command = rest and rest[0] in COMMANDS
    return '\n'.join(completions(*rest[:2]) if is_command else COMMANDS)
  shell = first.removeprefix('--completion=')
  if shell in _COMPLETIONS:
    return _COMPLETIONS[shell]
  if first.startswith('--completion'):
    sys.exit('vit-jax: --completion=SHELL knows bash, zsh and fish.')
  near = difflib.get_close_matches(first, COMMANDS, 1)
  hint = f' Did you mean {near[0]}?' if near else ''
  sys.exit(f'vit-jax: there is no command {first!r}.{hint} See vit-jax --help.')


def run(command: str, arguments: list[str], program: str = '') -> None:
  """Runs one of `COMMANDS`; messages start with `program`, or its name."""
  arguments = [_with_run_file(argument) for argument in arguments]
  sys.argv = [program or f'vit-jax {command}', *arguments]
  exits.on_interrupt()  # Ctrl-C would break the imports, which take seconds.
  if arguments != ['--complete']:
    if command in _COMPUTES:
      onednn.use()
    if command in _LONG:
      huge_pages.use()
  module = importlib.import_module(f'vit_jax.commands.{command}')
  from vit_jax.commands import cli  # Imported late: it imports JAX.

  sys.modules['__main__'].__doc__ = module.__doc__  # --help prints it.
  module.define_flags()
  with exits.stdout_may_close():
    cli.run(module.main)


def _with_run_file(argument: str) -> str:
  """Replaces `--config=NAME` by the path of the run file."""
  flag, equals, value = argument.partition('=')
  if flag.lstrip('-') != 'config' or not equals:
    return argument
  from vit_jax.configs import run_files  # Imported late: it takes time.

  return f'{flag}={run_files.find(value)}'


def main() -> None:
  """Runs the command that the first argument names."""
  first, rest = (*sys.argv[1:2], '--help')[0], sys.argv[2:]
  if first == 'help' and rest and rest[0] in COMMANDS:
    first, rest = rest[0], ['--help']
  if first in COMMANDS:
    run(first, rest)
  else:
    with exits.stdout_may_close():
      print(_answer(first, rest))
