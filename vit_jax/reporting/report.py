"""The page about a run, WORKDIR/report.html: one file with all pictures in it.

It predicts the test images once more, for confusions and for examples.
"""

from collections.abc import Mapping, Sequence
import json
import pathlib
import statistics
from typing import Any

import flax.traverse_util

from vit_jax import checkpoint
from vit_jax import models
from vit_jax import predictor as predictor_lib
from vit_jax.data import label_texts
from vit_jax.data import sources
from vit_jax.data.rows import table_files
from vit_jax.evaluation import multilabel
from vit_jax.evaluation import regression
from vit_jax.evaluation import scores
from vit_jax.models import flops
from vit_jax.reporting import curves
from vit_jax.reporting import examples
from vit_jax.reporting import pages
from vit_jax.reporting import plot
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import storage
from vit_jax.runtime import workdir as workdir_lib
from vit_jax.training import contrastive
from vit_jax.weights import artifact
from vit_jax.weights import record as weights_lib
from vit_jax.weights import training_run

_PANEL = (4, 2.8)  # Inches, so that letters are legible on a phone.


def of_workdir(
  workdir: str, dataset: str | None = None, *, predicts: bool = True
) -> storage.Path:
  """Writes the page of a run that has ended or is still running; returns its path.

  Args:
    workdir: workdir of the run.
    dataset: folder or name of the images; None for that of the run.
    predicts: whether the page has predictions of the test images. It has none of a
      run that evaluates none, `config.eval_every=0`.

  Raises:
    errors.UserError: if there is no run, or the page cannot be written.
  """
  run = workdir_lib.find_run(workdir)
  if run is None:
    raise errors.UserError(
      f'{workdir} is not a workdir: it has no config.json of a run.'
    )
  config = files.read_json(run.config)
  settings = training_run.saved_settings(run)
  weights, source = None, None
  path = _newest(run, settings.ema_decay > 0)
  is_average = path == run.artifact_ema
  try:
    with storage.local_copy(path) as folder:
      weights = checkpoint.read(folder)
  except errors.UserError as e:
    print(f'The page shows no predictions: {e}')
  if predicts and dataset is None and not settings.eval_every:
    predicts = False  # Its test images may be training images.
    print('The page shows no predictions: config.eval_every of the run is 0.')
  if predicts and weights is not None and not weights.vocabulary:
    source = sources.get_source(
      dataset or settings.dataset,
      settings.pp.test,
      data_dir=settings.tfds_data_dir,
      columns=table_files.Columns(**settings.columns, task=weights.task),
    )
  rows = curves.read(run)
  text = pages.render(
    'report.html.jinja',
    title=_title(config),
    facts=_facts(rows, is_average),
    is_average=is_average,
    panels=_panels(rows),
    settings=_flat(config),
    data=_flat(files.read_json(run.dataset)),
    environment=_flat(files.read_json(run.environment)),
    model=_model(weights),
    **_test_images(weights, source, settings.batch_eval),
  )
  with errors.writing(run.report):
    files.write_text(text, run.report)
  return run.report


def _newest(run: workdir_lib.Workdir, has_average: bool) -> storage.Path:
  """Returns the artifact, or the workdir of a run that has gone on since."""
  path = run.artifact_ema if has_average else run.artifact
  saved = artifact.info(path).get('step', -1)
  newest = training_run.find_step(run.folder)
  is_old = newest is not None and int(newest.name) > saved
  return path if path.is_dir() and not is_old else run.folder


def _title(config: Mapping[str, Any]) -> str:
  name = (config.get('model') or {}).get('model_name') or 'model'
  return f'{name} on {pathlib.PurePath(str(config["dataset"])).name}'


def _facts(
  rows: Sequence[curves.Row], is_average: bool
) -> list[tuple[str, str]]:
  """Returns the newest value of each metric, and the median speed.

  With `is_average` they are those of the moving average of the parameters. Of some, the
  value of the other parameters is shown too.
  """
  last: dict[str, int | float] = {}
  for row in rows:
    last |= row
  both = {k: last[k] for k in last if k + scores.AVERAGED in last}
  if is_average:
    last |= {k: last[k + scores.AVERAGED] for k in both}
    last |= {k + scores.AVERAGED: value for k, value in both.items()}
  others = 'last parameters' if is_average else 'averaged'
  speeds = [row['img_sec_train'] for row in rows if 'img_sec_train' in row]
  if speeds:
    last['img_sec_train'] = statistics.median(speeds)
  # Of images and texts, it is the share of images whose text is found first.
  top1 = 'text found first' if scores.TO_IMAGE in last else 'top-1'
  shown = {
    top1: (scores.ACCURACY, '{:.2%}'),
    'image found first': (scores.TO_IMAGE, '{:.2%}'),
    f'{top1}, {others}': (scores.ACCURACY + scores.AVERAGED, '{:.2%}'),
    'balanced accuracy': (scores.BALANCED, '{:.2%}'),
    'mean average precision': (multilabel.MAP, '{:.2%}'),
    f'mean average precision, {others}': (
      multilabel.MAP + scores.AVERAGED,
      '{:.2%}',
    ),
    'mean absolute error': (regression.MAE, ''),
    f'mean absolute error, {others}': (regression.MAE + scores.AVERAGED, ''),
    'R²': (regression.R2, '{:.4f}'),
    'test images': (scores.EXAMPLES, '{:,.0f}'),
    'test loss': (scores.LOSS, '{:.4g}'),
    'training loss': ('train_loss', '{:.4g}'),
    'temperature': (contrastive.TEMPERATURE, '{:.4g}'),
    'steps': ('step', '{:,.0f}'),
    'images/s, median': ('img_sec_train', ''),
  }
  return [
    (title, text.format(last[name]) if text else label_texts.number(last[name]))
    for title, (name, text) in shown.items()
    if name in last
  ]


def _panels(rows: Sequence[curves.Row]) -> list[tuple[str, str]]:
  return [
    (title, plot.svg(plot.curves({title: lines}, x='step', size=_PANEL)))
    for title, lines in curves.panels(rows).items()
  ]


def _flat(values: Mapping[str, Any]) -> list[tuple[str, str]]:
  """Returns the full name, such as pp.crop, and the text of each value."""
  flat = flax.traverse_util.flatten_dict(dict(values), sep='.')
  return [
    (name, json.dumps(value, ensure_ascii=False))
    for name, value in sorted(flat.items())
  ]


def _model(weights: weights_lib.Weights | None) -> str:
  if weights is None or weights.image_shape is None:
    return ''
  table = models.parameter_table(weights.params)
  cost = flops.forward_flops(weights.module(), weights.image_shape)
  return f'{table}\nForward pass: {cost / 1e9:.4g} GFLOP per image.'


def _test_images(
  weights: weights_lib.Weights | None,
  source: sources.LabelledSource | None,
  batch_size: int,
) -> dict[str, Any]:
  """Returns the sections about test images; empty if there is nothing to predict."""
  if weights is None or source is None or weights.vocabulary:
    return {}
  if weights_lib.has_zero_head(weights.params):  # Before the first step.
    return {}
  predictor = predictor_lib.Predictor(
    weights, batch_size=batch_size, on_bad_image='skip'
  )
  return examples.sections(predictor, source)
