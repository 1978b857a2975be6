"""Copies a finished run into a folder of `results/`, so that others can check it.

python -m tools.record_result --workdir=/tmp/c10 --output=results/cifar10 \
  --command='python -m vit_jax.main --config=configs/cifar10_scratch.py ...' \
  --hardware='2 CPU cores' --hours=2 --commit=$(git rev-parse --short HEAD)

The folder has the config, the metrics and their curves, and the model in float16,
which `tools.check_result` evaluates again. --model= omits it, for more seeds of the same
run; --model=../../checkpoints/ViT-Mini_8.npz says where it already is. Paths of this
machine are removed.
"""

from collections.abc import Mapping, Sequence
import json
import pathlib
from typing import Any

from absl import flags
import flax
import jax
import numpy as np
import optax

from vit_jax.commands import cli
from vit_jax.evaluation import scores
from vit_jax.reporting import curves
from vit_jax.reporting import plot
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import storage
from vit_jax.runtime import workdir as workdir_lib
from vit_jax.weights import array_files
from vit_jax.weights import artifact
from vit_jax.weights import extras

RESULT, MODEL = 'result.json', 'model'


def record(
  workdir: pathlib.Path,
  output: pathlib.Path,
  how: Mapping[str, Any],
  *,
  model: str = MODEL,
) -> dict[str, Any]:
  """Writes the folder `output` whole or not at all; returns its `result.json`.

  Args:
    workdir: workdir of a finished run.
    output: new folder for `result.json`, `config.json`, `metrics.jsonl`,
      `curve.png` and the folder `model`, which `vit-jax predict` takes.
    how: command, hardware, hours and commit, for the reader.
    model: path of the model from `output`: 'model' to write it there, another one if
      it is already in that file, or '' for none.

  Raises:
    errors.UserError: if the run has not ended, the folder exists, or `model` is
      another model.
  """
  if output.exists():
    raise errors.UserError(
      f'--output={output} exists. Delete it or name another.'
    )
  run = workdir_lib.at(workdir)
  config = files.read_json(run.config)
  averaged = bool(config.get('ema_decay'))
  source = run.artifact_ema if averaged else run.artifact
  if not artifact.is_artifact(source):
    raise errors.UserError(
      f'{workdir} has no {source.name}: the run has not ended. The command that'
      f' began it resumes it.'
    )
  if model not in ('', MODEL):
    _check_same(source, (output / model).resolve())
  saved = files.read_json(source / artifact.CONFIG)
  lines = run.metrics.read_text(encoding='utf-8')
  rows = curves.read(run)
  config['dataset'] = pathlib.PurePath(config['dataset']).name
  for info in (saved['info'], saved.get(extras.KEY, {}).get('info', {})):
    info['dataset'] = config['dataset']
  result = {
    **how,
    'dataset': config['dataset'],
    'step': saved['info']['step'],
    'model': model,
    'metrics': _of_model(saved['info']['metrics'], averaged),
    'versions': {m.__name__: m.__version__ for m in (jax, flax, optax, np)},
  }
  with files.replaced_folder(output, last=RESULT) as folder:
    small = workdir_lib.at(folder)
    files.write_json(config, small.config)
    files.write_text(lines, small.metrics)
    panels = curves.panels(rows, ('loss', 'test accuracy'))
    plot.save(plot.curves(panels, x='step'), folder / 'curve.png')
    if model == MODEL:
      (folder / MODEL).mkdir()
      _write_small(source, folder / MODEL, saved)
    files.write_json(result, folder / RESULT)
  return result


def _of_model(metrics: Mapping[str, Any], averaged: bool) -> dict[str, Any]:
  """Returns the metrics of the recorded model, without the suffix of averages."""
  if not averaged:
    return dict(metrics)
  return {
    key.removesuffix(scores.AVERAGED): value
    for key, value in metrics.items()
    if key.endswith(scores.AVERAGED)
  }


def _check_same(source: pathlib.Path, other: pathlib.Path) -> None:
  small = [
    {
      k: np.asarray(v, np.float16)
      for k, v in array_files.read_npz(path).items()
    }
    for path in (source / artifact.WEIGHTS, other)
  ]
  mine, theirs = small
  if mine.keys() != theirs.keys() or not all(
    np.array_equal(mine[name], theirs[name]) for name in mine
  ):
    raise errors.UserError(
      f'{other} is not the model of {source}: their parameters differ.'
    )


def _write_small(
  source: pathlib.Path, folder: pathlib.Path, config: Mapping[str, Any]
) -> None:
  arrays = array_files.read_npz(source / artifact.WEIGHTS)
  array_files.write_npz(arrays, folder / artifact.WEIGHTS, np.float16)
  files.write_lines(
    files.read_lines(source / artifact.LABELS), folder / artifact.LABELS
  )
  files.write_json(config, folder / artifact.CONFIG)


def main(argv: Sequence[str]) -> None:
  cli.refuse_words(argv)
  options = flags.FLAGS
  how = {
    name: options[name].value
    for name in ('command', 'hardware', 'hours', 'commit')
  }
  output = storage.local_path(options.output)
  result = record(
    storage.local_path(options.workdir), output, how, model=options.model
  )
  print(f'{output}: {json.dumps(result["metrics"])}')


if __name__ == '__main__':
  flags.DEFINE_string('workdir', None, 'Workdir of the run.', required=True)
  flags.DEFINE_string('output', None, 'New folder to write.', required=True)
  flags.DEFINE_string(
    'model', MODEL, 'Where the model is, from the folder; empty for none.'
  )
  flags.DEFINE_string('command', None, 'Command of the run.', required=True)
  flags.DEFINE_string('hardware', None, 'Hardware of the run.', required=True)
  flags.DEFINE_float('hours', None, 'Duration of the run.', required=True)
  flags.DEFINE_string('commit', None, 'Commit of the code.', required=True)
  cli.run(main)
