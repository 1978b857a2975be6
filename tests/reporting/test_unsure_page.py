"""The page of the least sure images: their order, captions and skipped files."""

import dataclasses
import html
import re

from made import random_weights
from made import VIT
import numpy as np
from pictures import write_colour
from processes import call_command
import pytest

from vit_jax import predictor as predictor_lib
from vit_jax.configs import labels
from vit_jax.evaluation import ranking
from vit_jax.reporting import unsure_page
from vit_jax.weights import artifact

NASTY = '<b>red</b>'


@pytest.fixture(scope='module')
def weights():
  return dataclasses.replace(
    random_weights(VIT, num_classes=3, size=32),
    class_names=['blue', 'green', NASTY],
  )


@pytest.fixture(scope='module')
def images(tmp_path_factory):
  folder, rng = tmp_path_factory.mktemp('images'), np.random.RandomState(0)
  for i in range(3):
    write_colour(folder / f'{i}.png', 'red', rng)
  return sorted(map(str, folder.iterdir()))


def captions(page):
  found = re.findall(r'<figcaption>(.*?)</figcaption>', page.read_text())
  return [html.unescape(caption) for caption in found]


def test_the_smallest_margins_come_first(
  weights, images, tmp_path, monkeypatch
):
  monkeypatch.setattr(unsure_page, '_MOST_IMAGES', 2)
  model = predictor_lib.Predictor(weights)
  rows = [
    (0, np.float32([0.5, 0.1, 0.4])),
    (1, np.float32([0.9, 0.0, 0.1])),
    (2, np.float32([0.4, 0.35, 0.25])),
  ]
  rows = list(ranking.unsure_first(iter(rows), weights))
  path = tmp_path / 'new' / 'x.html'
  skipped = {'<i>.jpg': 'not a JPEG', 'caf\udce9.jpg': 'not UTF-8'}
  shown = unsure_page.write(str(path), rows, images, weights, model, skipped)
  assert shown == 2
  assert captions(path) == [
    f'{images[2]}: blue 40.0%, green 35.0%',
    f'{images[0]}: blue 50.0%, {NASTY} 40.0%',
  ]
  text = path.read_text()
  assert NASTY not in text
  assert '<td>&lt;i&gt;.jpg</td><td>not a JPEG</td>' in text
  assert r'<td>caf\xe9.jpg</td><td>not UTF-8</td>' in text
  assert '3 images were predicted; below are the 2 least sure.' in text
  # Each image and its attention.
  assert text.count('src="data:image/jpeg') == 4


def test_the_class_nearest_to_its_threshold_is_named(weights):
  weights = dataclasses.replace(
    weights, task=labels.MULTILABEL, thresholds=[0.5, 0.3, 0.6]
  )
  caption = unsure_page.gallery.unsure(np.float32([0.9, 0.25, 0.3]), weights)
  assert caption == 'blue; green 25.0%, threshold 30.0%'
  caption = unsure_page.gallery.unsure(np.float32([0.1, 0.1, 0.5]), weights)
  assert caption == f'no class; {NASTY} 50.0%, threshold 60.0%'


def test_predict_writes_the_page(weights, images, tmp_path, monkeypatch):
  made, init = [], predictor_lib.Predictor.__init__
  monkeypatch.setattr(
    predictor_lib.Predictor,
    '__init__',
    lambda self, *args, **how: made.append(1) or init(self, *args, **how),
  )
  model, page = tmp_path / 'artifact', tmp_path / 'x.html'
  artifact.save(model, weights)
  names = f'--model={model},{model}'
  done = call_command('predict', names, f'--html={page}', '--csv', *images)
  rows = [line.split(',')[0] for line in done.stdout.splitlines()[1:]]
  shown = [caption.partition(': ')[0] for caption in captions(page)]
  assert shown == list(dict.fromkeys(rows))
  assert len(made) == 2  # Attention is that of the first of both models.
  done = call_command('predict', names, '--html=x.htm', *images)
  assert 'html=x.htm must end in .html' in done.stderr
  numbers = dataclasses.replace(
    weights, task=labels.REGRESSION, loss='l2', units=['', '', '']
  )
  artifact.save(tmp_path / 'numbers', numbers)
  done = call_command(
    'predict', f'--model={tmp_path}/numbers', f'--html={page}', *images
  )
  assert 'do not tell how sure' in done.stderr
  assert not done.stdout
