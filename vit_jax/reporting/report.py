"""The page about a run, WORKDIR/report.html: one file with all pictures in it.

It predicts the test images once more, for confusions and for examples.
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
import numpy as np

from vit_jax import checkpoint
from vit_jax import models
from vit_jax import predictor as predictor_lib
from vit_jax.data import sources
from vit_jax.data import subsets
from vit_jax.data import tables
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

_EXAMPLES = 8  # Most confident predictions shown, correct and wrong ones each.
_SIDE = 224  # Longer side of their pictures, in pixels.
_MOST_CLASSES = 2_000  # Most classes for which the confusion matrix is drawn.
_WORST_CLASSES = 15  # Weakest classes listed.
_PANEL = (4, 2.8)  # Inches, so that letters are legible on a phone.


def of_workdir(
  workdir: str, dataset: str | None = None, *, looks: bool = True
) -> storage.Path:
  """Writes the page of a run that has ended or is still running; returns its path.

  Args:
    workdir: workdir of the run.
    dataset: folder or name of the images; None for that of the run.
    looks: whether to predict the test images.

  Raises:
    errors.UserError: if there is no run, or the page cannot be written.
  """
  run = workdir_lib.at(workdir)
  config = files.read_json(run.config)
  if 'dataset' not in config:
    raise errors.UserError(
      f'{workdir} is not a workdir: it has no config.json of a run.'
    )
  weights, source = None, None
  path = run.artifact_ema if config['ema_decay'] else run.artifact
  try:
    with storage.local_copy(path if path.is_dir() else workdir) as folder:
      weights = checkpoint.read(folder)
  except errors.UserError as e:
    print(f'The page shows no predictions: {e}')
  if looks and weights is not None and not weights.vocabulary:
    source = sources.get_source(
      dataset or config['dataset'],
      config['pp']['test'],
      data_dir=config['tfds_data_dir'],
      columns=tables.Columns(**config.get('columns', {})),
    )
  rows = curves.read(run)
  text = _render(
    title=_title(config),
    facts=_facts(rows),
    panels=_panels(rows),
    settings=_flat(config),
    data=_flat(files.read_json(run.dataset)),
    environment=_flat(files.read_json(run.environment)),
    model=_model(weights),
    **_predictions(weights, source, config['batch_eval']),
  )
  with errors.writing(run.report):
    files.write_text(text, run.report)
  return run.report


def _render(**values: Any) -> str:
  import jinja2  # Imported late: only the page needs it.

  page = jinja2.Environment(
    loader=jinja2.PackageLoader('vit_jax.reporting', ''),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
  )
  return page.get_template('report.html.jinja').render(values)


def _title(config: Mapping[str, Any]) -> str:
  name = (config.get('model') or {}).get('model_name') or 'model'
  return f'{name} on {pathlib.PurePath(str(config["dataset"])).name}'


def _facts(rows: Sequence[curves.Row]) -> list[tuple[str, str]]:
  """Returns the newest value of each metric, and the median speed."""
  last: dict[str, int | float] = {}
  for row in rows:
    last |= row
  speeds = [row['img_sec_train'] for row in rows if 'img_sec_train' in row]
  if speeds:
    last['img_sec_train'] = statistics.median(speeds)
  shown = {
    'top-1': (scores.ACCURACY, '{:.2%}'),
    'top-1, averaged': (scores.ACCURACY + scores.AVERAGED, '{:.2%}'),
    'balanced accuracy': (scores.BALANCED, '{:.2%}'),
    'test images': (scores.EXAMPLES, '{:,.0f}'),
    'test loss': (scores.LOSS, '{:.4g}'),
    'training loss': ('train_loss', '{:.4g}'),
    'steps': ('step', '{:,.0f}'),
    'images/s, median': ('img_sec_train', '{:,.4g}'),
  }
  return [
    (title, text.format(last[name]))
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


def _predictions(
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
  names = predictor.labels
  p = scores.predict(predictor.probabilities(source), names, source)
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
  from sklearn import metrics  # Imported late: it takes a second.

  classes, best = range(len(names)), p.best[:, 0]
  shares = metrics.confusion_matrix(
    p.labels, best, labels=classes, normalize='true'
  )
  return plot.svg(plot.matrix(shares, names, x='predicted', y='class'))


def _calibration(p: scores.Predictions) -> Any:
  rows = scores.reliability(p)
  confidence = [row['confidence'] for row in rows]
  accuracy = [row['accuracy'] for row in rows]
  perfect: plot.Line = ([0, 1], [0, 1])
  lines = {'this model': (confidence, accuracy), 'perfect': perfect}
  return plot.curves({'accuracy': lines}, x='confidence', size=_PANEL)


def _examples(
  predictor: predictor_lib.Predictor,
  source: sources.LabelledSource,
  p: scores.Predictions,
) -> dict[str, list[dict[str, Any]]]:
  """Returns the most confident correct and wrong predictions, with pictures."""
  by_confidence = np.argsort(-p.confidence, kind='stable')
  correct = p.correct[by_confidence]
  chosen = {
    'Most confident, correct': by_confidence[correct][:_EXAMPLES],
    'Most confident, wrong': by_confidence[~correct][:_EXAMPLES],
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
  attention = [''] * len(images)
  if predictor.weights.spec.num_heads:
    maps = zip(images, predictor.rollout(subset), strict=True)
    attention = [_data_uri(attention_pictures.on_image(*x)) for x in maps]
  return [
    {
      'image': _data_uri(image),
      'attention': picture,
      'label': predictor.labels[p.labels[i]],
      'predicted': predictor.labels[p.best[i, 0]],
      'confidence': p.confidence[i],
    }
    for i, image, picture in zip(indices, images, attention, strict=True)
  ]


def _data_uri(image: Float[np.ndarray, 'H W 3']) -> str:
  height, width = image.shape[:2]
  scale = _SIDE / max(height, width)
  size = (max(1, round(width * scale)), max(1, round(height * scale)))
  small = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
  pixels = np.round(np.clip(small, 0, 1) * 255).astype(np.uint8)
  _, data = cv2.imencode('.jpg', pixels[..., ::-1])
  return f'data:image/jpeg;base64,{base64.b64encode(data.tobytes()).decode()}'
