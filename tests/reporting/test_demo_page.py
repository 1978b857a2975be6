"""What the demo page shows of each task."""

import dataclasses

from made import random_weights
from made import VIT
import numpy as np
import pytest

from vit_jax import checkpoint
from vit_jax import predictor as predictor_lib
from vit_jax.configs import labels
from vit_jax.reporting import demo_page

ROW = np.float32([0.25, 0.9, 0.6])


@pytest.mark.parametrize(
  ('fields', 'headers', 'shown'),
  [
    ({'task': labels.MULTICLASS}, [], {'b': 0.9, 'c': 0.6}),
    (
      {'task': labels.MULTILABEL},
      ['class', 'probability', 'threshold', 'present'],
      [['b', '90.0%', '50.0%', 'yes'], ['c', '60.0%', '50.0%', 'yes']],
    ),
    (
      {'task': labels.MULTILABEL, 'thresholds': [0.3, 0.2, 0.7]},
      ['class', 'probability', 'threshold', 'present'],
      [['b', '90.0%', '20.0%', 'yes'], ['c', '60.0%', '70.0%', 'no']],
    ),
    (
      {'task': labels.REGRESSION, 'units': ('mm', '', 'V')},
      ['number', 'value', 'unit'],
      [['a', '0.25', 'mm'], ['b', '0.9', ''], ['c', '0.6', 'V']],
    ),
    (
      {'task': labels.REGRESSION},
      ['number', 'value'],
      [['a', '0.25'], ['b', '0.9'], ['c', '0.6']],
    ),
  ],
)
def test_each_task_has_its_table(fields, headers, shown):
  weights = dataclasses.replace(
    checkpoint.read('ViT-Mini_8'), class_names=[*'abc'], **fields
  )
  assert demo_page._headers(weights) == headers
  found = demo_page._shown(ROW, weights, 2)
  assert found == (pytest.approx(shown) if headers == [] else shown)


def test_all_classes_that_are_present_are_shown():
  weights = dataclasses.replace(
    checkpoint.read('ViT-Mini_8'),
    class_names=[*'abc'],
    task=labels.MULTILABEL,
    thresholds=[0.1, 0.1, 0.1],
  )
  names = [name for name, *_ in demo_page._shown(ROW, weights, 1)]
  assert names == ['b', 'c', 'a']
  # A class may be present though others, which are not, are more probable.
  weights = dataclasses.replace(weights, thresholds=[0.1, 0.95, 0.95])
  rows = demo_page._shown(ROW, weights, 1)
  assert [(name, present) for name, *_, present in rows] == [
    ('b', 'no'),
    ('a', 'yes'),
  ]


def test_files_of_stacks_are_classified(tmp_path):
  pytest.importorskip('gradio')
  client_lib = pytest.importorskip('gradio_client')
  weights = random_weights(VIT, shape=(32, 32, 5))
  how = dataclasses.replace(
    weights.preprocessing, mean=(0.5,) * 5, std=(0.2,) * 5, channels=5
  )
  predictor = predictor_lib.Predictor(
    dataclasses.replace(weights, preprocessing=how)
  )
  image = np.random.default_rng(0).integers(0, 1 << 16, (40, 48, 5), np.uint16)
  for name, array in (('good', image), ('bad', image[..., :4])):
    np.save(tmp_path / f'{name}.npy', array)
  [(_, want)] = predictor.probabilities(str(tmp_path / 'good.npy'))
  blocks = demo_page.page(predictor, 'A model')
  url = demo_page.serve(
    blocks, host='127.0.0.1', port=None, max_mb=1, block=False
  )
  try:
    client = client_lib.Client(url, verbose=False)

    def answer(name):
      file = client_lib.handle_file(str(tmp_path / name))
      return client.predict(file, api_name='/predict')

    shown, drawn = answer('good.npy')
    found = {x['label']: x['confidence'] for x in shown['confidences']}
    names = weights.class_names
    assert found == pytest.approx(dict(zip(names, want, strict=True)), abs=1e-6)
    assert drawn
    with pytest.raises(Exception, match='it has 4 channels, must have 5'):
      answer('bad.npy')
  finally:
    blocks.close()
