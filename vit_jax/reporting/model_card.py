"""The card of a model on the Hugging Face hub, from its run."""

from collections.abc import Mapping
import pathlib
import shlex
from typing import Any

import huggingface_hub

from vit_jax.configs import labels as labels_lib
from vit_jax.data import label_texts
from vit_jax.evaluation import scores
from vit_jax.reporting import curves
from vit_jax.reporting import pages
from vit_jax.reporting import plot
from vit_jax.runtime import environment as environment_lib
from vit_jax.runtime import files
from vit_jax.runtime import workdir as workdir_lib
from vit_jax.weights import record as weights_lib

_MOST_CLASSES = 20  # Classes whose images are counted one by one.

# Names of settings of `config.json` by the key of `dataset.json`.
_SPLITS = {'config.pp.train': 'training', 'config.pp.test': 'test'}

# What the hub calls our metrics.
_METRICS = {scores.ACCURACY: 'accuracy', scores.F1: 'f1', 'mae_test': 'mae'}


def write(
  folder: pathlib.Path,
  weights: weights_lib.Weights,
  repository: str,
  *,
  library: str,
  run: workdir_lib.Workdir | None = None,
  license_name: str = '',
) -> None:
  """Writes README.md, and curve.png if there are metrics.

  Args:
    folder: where the files go.
    weights: the model.
    repository: USER/NAME.
    library: the library whose format the other files have.
    run: workdir of the run, if the model is from one.
    license_name: name of the license on the hub; empty for none.
  """
  rows = curves.read(run) if run else []
  if rows:
    figure = plot.curves(curves.panels(rows), x='step')
    plot.save(figure, folder / 'curve.png')
  dataset = files.read_json(run.dataset) if run else {}
  environment = files.read_json(run.environment) if run else {}
  metrics = weights.info.get('metrics') or {}
  text = pages.render(
    'model_card.md.jinja',
    header=_header(weights, repository, library, license_name),
    title=repository.rpartition('/')[2],
    model=weights_lib.describe(weights),
    repository=repository,
    library=library,
    is_trained='step' in weights.info,
    task=weights.task,
    labels=[_escaped(name) for name in weights.class_names],
    units=weights.units,
    data=_data(dataset),
    metrics=[(k, label_texts.number(v)) for k, v in metrics.items()],
    curve=bool(rows),
    command=shlex.join(
      environment_lib.command(environment.get('command') or [])
    ),
    versions=_versions(environment),
  )
  files.write_text(text, folder / 'README.md')


def _header(
  weights: weights_lib.Weights,
  repository: str,
  library: str,
  license_name: str,
) -> str:
  """Returns the facts that the hub reads, as YAML."""
  kind = 'image-classification'
  if not weights.class_names or weights.task == labels_lib.REGRESSION:
    kind = 'image-feature-extraction'
  metrics = weights.info.get('metrics') or {}
  dataset = pathlib.PurePath(str(weights.info.get('dataset', ''))).name
  results = [
    huggingface_hub.EvalResult(
      task_type=kind,
      dataset_type=dataset,
      dataset_name=dataset,
      metric_type=known,
      metric_value=metrics[name],
    )
    for name, known in _METRICS.items()
    if name in metrics
  ]
  return huggingface_hub.ModelCardData(
    library_name=library,
    license=license_name or None,
    tags=['vit_jax', 'vision-transformer'],
    pipeline_tag=kind,
    model_name=repository.rpartition('/')[2],
    eval_results=results or None,
  ).to_yaml()


def _escaped(name: str) -> str:
  """Returns a name that Markdown shows as it is, in one line."""
  line = ' '.join(name.split())
  return ''.join(f'\\{c}' if c in '\\`*_[]<>|#$&' else c for c in line)


def _data(dataset: Mapping[str, Any]) -> list[tuple[str, int, str]]:
  """Returns name, number of images, and counts of classes of each split."""
  found = []
  for key, name in _SPLITS.items():
    if key not in dataset:
      continue
    classes = dataset[key].get('classes') or {}
    counts = [f'{_escaped(n)} {count:,}' for n, count in classes.items()]
    text = ', '.join(counts[:_MOST_CLASSES])
    more = len(counts) - _MOST_CLASSES
    text += f' and {more} more classes' if more > 0 else ''
    found.append((name, dataset[key]['images'], text))
  return found


def _versions(environment: Mapping[str, Any]) -> list[tuple[str, Any]]:
  packages = environment.get('packages') or {}
  facts = {
    'vit_jax': environment.get('vit_jax'),
    'commit': environment.get('commit'),
    'devices': environment.get('devices'),
    'jax': packages.get('jax'),
    'flax': packages.get('flax'),
  }
  return [(name, value) for name, value in facts.items() if value]
