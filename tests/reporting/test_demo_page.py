"""What the demo page shows of each task."""

import dataclasses

import numpy as np
import pytest

from vit_jax import checkpoint
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
      {'task': labels.MULTILABEL, 'thresholds': [0.2, 0.2, 0.7]},
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
    checkpoint.read('ViT-Mini_4'), class_names=[*'abc'], **fields
  )
  assert demo_page._headers(weights) == headers
  found = demo_page._shown(ROW, weights, 2)
  assert found == (pytest.approx(shown) if headers == [] else shown)


def test_all_classes_that_are_present_are_shown():
  weights = dataclasses.replace(
    checkpoint.read('ViT-Mini_4'),
    class_names=[*'abc'],
    task=labels.MULTILABEL,
    thresholds=[0.1, 0.1, 0.1],
  )
  names = [name for name, *_ in demo_page._shown(ROW, weights, 1)]
  assert names == ['b', 'c', 'a']
