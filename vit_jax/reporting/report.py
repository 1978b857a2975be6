"""Writes a page about a run, WORKDIR/report.html, which needs no other file.

python -m vit_jax.reporting.report /tmp/run

Each run leaves one at its end (`config.report`); of a run that goes on, this shows
the newest checkpoint. Test images are looked at once more, for the confusions and
for the best and worst predictions.
"""

import base64
from collections.abc import Mapping, Sequence
import json
import pathlib
import statistics
from typing import Any

import cv2
import flax.traverse_util
from jaxtyping import Float, Int
import ml_collections
import numpy as np

from vit_jax import checkpoint
from vit_jax import models
from vit_jax import predictor as predictor_lib
from vit_jax.data import sources
from vit_jax.data import subsets
from vit_jax.evaluation import predictions
from vit_jax.evaluation import scores
from vit_jax.models import flops
from vit_jax.reporting import attention_pictures
from vit_jax.reporting import curves
from vit_jax.reporting import plot
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import storage
from vit_jax.runtime import workdir as workdir_lib
from vit_jax.weights import record as weights_lib

_EXAMPLES = 8  # Of the best predictions, and of the worst.
_SIDE = 224  # Of their pictures, in pixels.
_MOST_CLASSES = 200  # That are drawn in a matrix.
_WORST_CLASSES = 15  # That are listed.
_PANEL = (4, 2.8)  # Inches, so that a phone shows letters of a good size.


def write(
  workdir: str,
  config: Mapping[str, Any],
  weights: weights_lib.Weights | None = None,
  source: sources.LabelledSource | None = None,
) -> storage.Path:
  """Writes the page; returns its path.

  Args:
    workdir: of the run, which has its metrics.
    config: of the run.
    weights: of the model; None if there are none yet.
    source: of test images; None leaves out what needs them.

  Raises:
    errors.UserError: at an image that cannot be decoded, or if the page cannot
      be written.
  """
  import jinja2  # Only here, at the end of a run.

  run = workdir_lib.at(workdir)
  rows = curves.read(run)
  loader = jinja2.PackageLoader('vit_jax.reporting', '')
  page = jinja2.Environment(
    loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True
  )
  text = page.get_template('report.html.jinja').render(
    title=_title(config),
    facts=_facts(rows),
    panels=_panels(rows),
    settings=_flat(config),
    data=_flat(files.read_json(run.dataset)),
    environment=_flat(files.read_json(run.environment)),
    model=_model(weights),
    **_predictions(weights, source, config['batch_eval']),
  )
  try:
    files.write_text(text, run.report)
  except OSError as e:
    raise errors.UserError(
      f'{run.report} cannot be written: {e.strerror}.'
    ) from e
  return run.report


def _title(config: Mapping[str, Any]) -> str:
  name = (config.get('model') or {}).get('model_name') or 'model'
  return f'{name} on {pathlib.PurePath(str(config["dataset"])).name}'


def _facts(rows: Sequence[curves.Row]) -> list[tuple[str, str]]:
  """Returns what stands at the top: last values, and the median of the speed."""
  last = {}
  for row in rows:
    last |= row
  speeds = [row['img_sec_train'] for row in rows if 'img_sec_train' in row]
  if speeds:
    last['img_sec_train'] = statistics.median(speeds)
  shown = {
    'top-1': ('accuracy_test', '{:.2%}'),
    'top-1, averaged': ('accuracy_test_ema', '{:.2%}'),
    'test images': ('examples_test', '{:,.0f}'),
    'test loss': ('loss_test', '{:.4g}'),
    'training loss': ('train_loss', '{:.4g}'),
    'steps': ('step', '{:,.0f}'),
    'images/s, median': ('img_sec_train', '{:,.4g}'),
  }
  return [
    (title, how.format(last[name]))
    for title, (name, how) in shown.items()
    if name in last
  ]


def _panels(rows: Sequence[curves.Row]) -> list[tuple[str, str]]:
  return [
    (title, plot.svg(plot.curves({title: lines}, x='step', size=_PANEL)))
    for title, lines in curves.panels(rows).items()
  ]


def _flat(values: Mapping[str, Any]) -> list[tuple[str, str]]:
  """Returns names, after those they are in and a dot, and values as text."""
  flat = flax.traverse_util.flatten_dict(dict(values), sep='.')
  return [
    (name, json.dumps(value, ensure_ascii=False))
    for name, value in sorted(flat.items())
  ]


def _model(weights: weights_lib.Weights | None) -> str:
  if weights is None:
    return ''
  table = models.parameter_table(weights.params)
  cost = flops.forward_flops(weights.module(), weights.image_shape)
  return f'{table}\nForward pass: {cost / 1e9:.4g} GFLOP an image.'


def _predictions(
  weights: weights_lib.Weights | None,
  source: sources.LabelledSource | None,
  batch_size: int,
) -> dict[str, Any]:
  """Returns what the page tells of test images; nothing if there are none."""
  if weights is None or source is None or weights.vocabulary:
    return {}
  if weights_lib.has_zero_head(weights.params):  # It never learned anything.
    return {}
  predictor = predictor_lib.Predictor(
    weights, batch_size=batch_size, on_bad_image='skip'
  )
  p = predictions.predictions(predictor, source)
  names = predictor.labels
  classes = scores.per_class(p, names)
  worst = sorted(classes.items(), key=lambda item: item[1]['accuracy'])
  return {
    'summary': scores.summary(p),
    'matrix': _matrix(p, names),
    'most_classes': _MOST_CLASSES,
    'calibration': plot.svg(_calibration(p)),
    'confused': scores.confused(p, names, most=_WORST_CLASSES),
    'worst_classes': worst[:_WORST_CLASSES],
    'examples': _examples(predictor, source, p),
    'skipped': len(predictor.skipped),
  }


def _matrix(p: scores.Predictions, names: Sequence[str]) -> str:
  if len(names) > _MOST_CLASSES:
    return ''
  shares = np.zeros((len(names), len(names)))
  for label, other, count in scores.confusion(p):
    shares[label, other] = count
  shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1)
  return plot.svg(plot.matrix(shares, names, x='taken for', y='class'))


def _calibration(p: scores.Predictions) -> Any:
  rows = scores.reliability(p)
  lines = {
    'this model': tuple(
      [row[name] for row in rows] for name in ('confidence', 'accuracy')
    ),
    'perfect': ([0, 1], [0, 1]),
  }
  return plot.curves({'accuracy': lines}, x='confidence', size=_PANEL)


def _examples(
  predictor: predictor_lib.Predictor,
  source: sources.LabelledSource,
  p: scores.Predictions,
) -> dict[str, list[dict[str, Any]]]:
  """Returns the surest of the right predictions, and of the wrong ones."""
  right, wrong = np.flatnonzero(p.correct), np.flatnonzero(~p.correct)
  chosen = {
    'Surest and right': right[np.argsort(-p.confidence[right])][:_EXAMPLES],
    'Surest and wrong': wrong[np.argsort(-p.confidence[wrong])][:_EXAMPLES],
  }
  return {
    title: _pictures(predictor, source, p, indices)
    for title, indices in chosen.items()
    if len(indices)
  }


def _pictures(
  predictor: predictor_lib.Predictor,
  source: sources.LabelledSource,
  p: scores.Predictions,
  indices: Int[np.ndarray, ' n'],
) -> list[dict[str, Any]]:
  subset = subsets.Subset(source, p.places[indices])
  images = [
    attention_pictures.as_picture(x) for _, x in predictor.prepared(subset)
  ]
  maps = [None] * len(images)
  if predictor.weights.spec.num_heads:
    maps = predictor.rollout(subset)
  return [
    {
      'image': _data_uri(image),
      'attention': _data_uri(attention_pictures.on_image(image, values))
      if values is not None
      else '',
      'label': predictor.labels[p.labels[i]],
      'taken_for': predictor.labels[p.best[i, 0]],
      'confidence': p.confidence[i],
    }
    for i, image, values in zip(indices, images, maps, strict=True)
  ]


def _data_uri(image: Float[np.ndarray, 'H W 3']) -> str:
  height, width = image.shape[:2]
  scale = _SIDE / max(height, width)
  size = (max(1, round(width * scale)), max(1, round(height * scale)))
  small = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
  pixels = np.round(np.clip(small, 0, 1) * 255).astype(np.uint8)
  _, data = cv2.imencode('.jpg', pixels[..., ::-1])
  return f'data:image/jpeg;base64,{base64.b64encode(data).decode()}'


def of_workdir(
  workdir: str, dataset: str | None = None, *, looks: bool = True
) -> storage.Path:
  """Writes the page of a run that ended, or goes on.

  Args:
    workdir: of the run.
    dataset: where the images are now; None for where they were.
    looks: whether to look at the test images.

  Raises:
    errors.UserError: if it is no workdir, or what `write` raises.
  """
  run = workdir_lib.at(workdir)
  config = files.read_json(run.config)
  if 'dataset' not in config:
    raise errors.UserError(
      f'{workdir} is no workdir of a run: it has no config.json of one.'
    )
  weights, source = None, None
  path = run.artifact_ema if config['ema_decay'] else run.artifact
  try:
    with storage.local_copy(path if path.is_dir() else workdir) as folder:
      weights = checkpoint.read(folder)
  except errors.UserError as e:
    print(f'No predictions are shown: {e}')
  if looks and weights is not None and not weights.vocabulary:
    config = ml_collections.ConfigDict(config)
    source = sources.get_source(
      dataset or config.dataset,
      config.pp.test,
      data_dir=config.tfds_data_dir,
    )
    config = config.to_dict()
  return write(workdir, config, weights, source)
