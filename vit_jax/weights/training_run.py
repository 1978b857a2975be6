"""Reads the checkpoints of a training run, which orbax wrote."""

import pathlib
from typing import Any

import jax
import ml_collections
import numpy as np

from vit_jax.configs import arguments
from vit_jax.configs import common
from vit_jax.configs import labels as labels_lib
from vit_jax.configs import resolved
from vit_jax.configs import spec
from vit_jax.data import preprocessing
from vit_jax.models import blocks
from vit_jax.models import lora
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import storage
from vit_jax.runtime import workdir as workdir_lib
from vit_jax.weights import checks
from vit_jax.weights import record as weights_lib
from vit_jax.weights import units
from vit_jax.weights import vocabularies

# Facts of a number in `dataset.json`.
_SCALE = ('mean', 'std')


def find_step(path: pathlib.Path) -> pathlib.Path | None:
  """Returns a step: the path itself, or the newest in a workdir, or None."""
  folder = workdir_lib.at(path).checkpoints
  if path.name.isdigit() and path.parent.name == folder.name:
    return path
  if path.name == folder.name:
    folder = path
  if not folder.is_dir():
    return None
  steps = [step for step in folder.iterdir() if step.name.isdigit()]
  return max(steps, key=lambda step: int(step.name), default=None)


def read(step: pathlib.Path) -> weights_lib.Weights:
  """Reads the parameters of a step and the settings of its workdir."""
  workdir = workdir_lib.at(step.parents[1])
  settings = saved_settings(workdir)
  try:
    params = blocks.unstack(_restore_params(step.resolve() / 'default'))
  except (OSError, ValueError, KeyError, TypeError) as e:
    reason = errors.first_line(e)
    raise errors.UserError(f'{step} is not a whole checkpoint: {reason}') from e
  class_names = weights_lib.numbered_classes(params)
  if workdir.labels.is_file():
    class_names = files.read_lines(workdir.labels)
  try:
    params = lora.merge(params, settings.lora_alpha)
    rows = _numbers(workdir) if settings.task == labels_lib.REGRESSION else []
    if rows:
      heads = spec.of(settings.model).heads
      mean, std = (
        np.array([row[key] for row in rows], np.float32) for key in _SCALE
      )
      params = units.in_units(params, heads, mean, std)
    weights = weights_lib.Weights(
      params=params,
      model=arguments.of_saved_model(settings),
      class_names=class_names,
      preprocessing=preprocessing.of_config(
        settings, weights_lib.num_channels(params)
      ),
      loss=settings.loss,
      task=settings.task or labels_lib.MULTICLASS,
      units=[row['unit'] for row in rows if 'unit' in row],
      **_fitted(workdir, int(step.name)),
      info={
        **weights_lib.info_of_data(settings),
        'step': int(step.name),
        'metrics': files.read_json(step / 'metrics' / 'metrics') or None,
      },
      vocabulary=_vocabulary(workdir, settings),
    )
  except (AttributeError, KeyError, TypeError) as e:
    reason = f'belongs to another version: {e}'
    raise errors.UserError(f'{workdir.config} {reason}') from e
  with weights_lib.naming(step):
    checks.check(weights)
  return weights


def _numbers(workdir: workdir_lib.Workdir) -> list[dict[str, Any]]:
  """Returns mean, standard deviation and unit of each number that is predicted."""
  return list(
    files.read_json(workdir.dataset)['config.pp.train']['numbers'].values()
  )


def _fitted(workdir: workdir_lib.Workdir, step: int) -> dict[str, Any]:
  """Returns the fields of weights that held-out images decided at the last step."""
  found = files.read_json(workdir.fitted)
  return found if found.pop('step', None) == step else {}


def saved_settings(workdir: workdir_lib.Workdir) -> ml_collections.ConfigDict:
  """Returns the settings of a run, with defaults for those of later versions.

  Raises:
    errors.UserError: if config.json is missing, or is not that of a run.
  """
  saved = files.read_json(workdir.config)
  if not saved:
    raise errors.UserError(
      f'{workdir.config} is missing, which says what model the run trains.'
    )
  settings = common.get_config()
  try:
    with settings.unlocked():
      settings.update(saved)
    return resolved.with_defaults(settings)
  except (AttributeError, KeyError, TypeError, ValueError) as e:
    reason = f'belongs to another version: {e}'
    raise errors.UserError(f'{workdir.config} {reason}') from e


def _vocabulary(
  workdir: workdir_lib.Workdir, config: ml_collections.ConfigDict
) -> str | None:
  """Returns the path of the tokeniser's file of a LiT run, if it exists."""
  if not spec.has_texts(config.model):
    return None
  # Earlier versions kept a copy only in the artifact.
  paths = [
    path
    for name in vocabularies.names(config.model)
    for path in (workdir.folder / name, workdir.artifact / name)
  ]
  if config.vocabulary:
    paths.append(storage.local_path(config.vocabulary))
  return next((str(p) for p in paths if p.is_file()), None)


def _restore_params(folder: pathlib.Path) -> weights_lib.Params:
  import orbax.checkpoint as ocp  # Imported late: it takes time.

  with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
    tree = checkpointer.metadata(folder)
    tree = getattr(tree, 'item_metadata', tree)
    shapes = jax.tree.map(
      lambda x: np.broadcast_to(np.zeros((), x.dtype), x.shape), tree['params']
    )
    item = {'params': shapes}
    how = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), item)
    restore = ocp.args.PyTreeRestore(
      item=item, restore_args=how, partial_restore=True
    )
    return checkpointer.restore(folder, args=restore)['params']
