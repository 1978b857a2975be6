"""Run files by path, or by name from the package."""

import difflib
import pathlib
import runpy

import ml_collections

from vit_jax.runtime import errors
from vit_jax.runtime import storage


def _packaged() -> pathlib.Path:
  return storage.packaged(inside='run_files', beside='configs')


def names() -> list[str]:
  """Returns the names of the run files that come with the package."""
  return sorted(path.stem for path in _packaged().glob('[!_]*.py'))


def find(value: str) -> str:
  """Returns the value of `--config` with the path of a file that exists.

  Args:
    value: `b16_cifar10`, `configs/b16_cifar10.py` or any other path, with an
      optional argument after a colon. An existing file wins over the one of that
      name in the package. Any other value is returned unchanged.
  """
  name, colon, argument = value.partition(':')
  if storage.is_address(name):
    return value
  path = storage.local_path(name)
  if path.is_file() or path.parent.as_posix() not in ('.', 'configs'):
    return value
  packaged = _packaged() / f'{path.name.removesuffix(".py")}.py'
  return f'{packaged}{colon}{argument}' if packaged.is_file() else value


def model_and_data(
  argument: str, *, example: str, data: str = 'a data set'
) -> tuple[str, str]:
  """Returns the model and the data set of a run file's argument, 'MODEL,DATA'.

  For the message, `example` is a run file with its argument, such as
  'vit.py:b16,cifar10', and `data` what the second part is called.

  Raises:
    ValueError: if the argument has no comma.
  """
  model, comma, dataset = argument.partition(',')
  if not comma:
    raise ValueError(
      f'configs/{example.partition(":")[0]} needs a model and {data} such as'
      f' {example}, not {argument!r}.'
    )
  return model, dataset


def hint(name: str) -> str:
  """Returns a hint for an unknown name: a similar run file, and all of them."""
  near = difflib.get_close_matches(pathlib.PurePath(name).stem, names(), 1)
  meant = f' Did you mean {near[0]}?' if near else ''
  return f'{meant} The package has {", ".join(names())}.'


def load(name: str, argument: str | None = None) -> ml_collections.ConfigDict:
  """Returns the config of a run file.

  >>> config = vit_jax.run_file('finetune_mini', 'cifar10')
  >>> config.dataset, config.model.model_name
  ('cifar10', 'ViT-Mini_8')

  Args:
    name: `finetune_mini`, or the path of a file.
    argument: the text after the colon on the command line, such as a data set;
      None for its default.

  Raises:
    errors.UserError: if the file does not exist.
  """
  path = storage.local_path(find(name))
  if not path.is_file():
    raise errors.UserError(f'There is no run file {name!r}.{hint(name)}')
  get_config = runpy.run_path(str(path))['get_config']
  return get_config() if argument is None else get_config(argument)
