"""Scores, classes by name or number, ReaL labels, the command."""

import json

from golden_files import GOLDEN
import numpy as np
from pictures import make_image_folder
from processes import call_command
import pytest

import vit_jax
from vit_jax import checkpoint
from vit_jax import models
from vit_jax import predictor as predictor_lib
from vit_jax.data import preprocessing
from vit_jax.data import sources
from vit_jax.evaluation import probes
from vit_jax.evaluation import scores
from vit_jax.runtime import errors
from vit_jax.weights import artifact

NAMES = ['ant', 'bee', 'cow', 'dog']

# Two best of four classes, with the probability of the best and of the label.
SAID = scores.Predictions(
  places=np.arange(6),
  labels=np.array([0, 0, 1, 1, 2, 2]),
  best=np.array([[0, 1], [1, 0], [1, 0], [3, 0], [1, 3], [2, 1]]),
  confidence=np.array([0.9, 0.6, 0.7, 0.5, 0.65, 1.0]),
  probability=np.array([0.9, 0.3, 0.7, 0.1, 0.05, 1.0]),
)


def test_summary_equals_values_by_hand():
  got = scores.summary(SAID)
  assert got['examples_test'] == 6
  assert got['accuracy_test'] == pytest.approx(3 / 6)
  assert got['top5_test'] == pytest.approx(4 / 6)
  assert got['confidence'] == pytest.approx(np.mean(SAID.confidence))
  assert got['nll'] == pytest.approx(-np.log(SAID.probability).mean())
  # Bins of 1/15: (0.4667, 0.5333], (0.6, 0.6667] has 0.65, (0.5333, 0.6] 0.6,
  # (0.6667, 0.7333] 0.7, (0.8667, 0.9333] 0.9, (0.9333, 1] 1.0: one image each.
  gaps = [0.1, 0.6, 0.3, 0.5, 0.65, 0.0]
  assert got['ece'] == pytest.approx(np.mean(gaps))
  assert [r['examples'] for r in scores.reliability(SAID)] == [1] * 6


def test_hits_are_the_first_and_the_first_five():
  best = np.array([[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5], [9, 1, 2, 3, 8, 5]])
  got = scores.hits(best, np.array([0, 5, 8]))
  assert got['accuracy_test'].tolist() == [True, False, False]
  assert got['top5_test'].tolist() == [True, False, True]


def test_calibration_error_within_a_bin():
  said = scores.Predictions(
    places=np.arange(4),
    labels=np.zeros(4, int),
    best=np.array([[0], [0], [0], [1]]),
    confidence=np.array([0.95, 0.96, 0.97, 0.96]),
    probability=np.ones(4),
  )
  [row] = scores.reliability(said)
  assert row['accuracy'] == 0.75
  assert scores.summary(said)['ece'] == pytest.approx(0.21)


def test_classes_equal_values_by_hand():
  classes = scores.per_class(SAID, NAMES)
  assert set(classes) == {'ant', 'bee', 'cow'}  # No image is a dog.
  assert classes['ant'] == {'examples': 2, 'accuracy': 0.5, 'precision': 1.0}
  assert classes['bee'] == {
    'examples': 2,
    'accuracy': 0.5,
    'precision': pytest.approx(1 / 3),
  }
  assert scores.confusion(SAID).tolist() == [
    [0, 0, 1],
    [0, 1, 1],
    [1, 1, 1],
    [1, 3, 1],
    [2, 1, 1],
    [2, 2, 1],
  ]
  twice = scores.Predictions(
    **{k: np.concatenate([v, v[3:5], v[4:5]]) for k, v in vars(SAID).items()}
  )
  worst = scores.confused(twice, NAMES, most=2)
  assert worst == [
    {'class': 'cow', 'predicted': 'bee', 'examples': 3},
    {'class': 'bee', 'predicted': 'dog', 'examples': 2},
  ]


def test_any_accepted_label_is_correct():
  accepted = [[0, 1], [1], [], [0], [3], [2]]
  got = scores.real_accuracy(SAID, accepted, range(4))
  assert got == {'examples_real': 5, 'accuracy_real': pytest.approx(3 / 5)}
  # Of a model whose classes are others of ImageNet.
  accepted = [[label + 100 for label in row] for row in accepted]
  assert scores.real_accuracy(SAID, accepted, range(100, 104)) == got


def test_classes_are_found_by_name_or_number():
  numbered = [f'class {i}' for i in range(12)]
  for dataset, model, want in (
    (['cow', 'ant'], NAMES, [2, 0]),
    (['0', '10', '2'], numbered, [0, 10, 2]),  # As folders are sorted.
    (NAMES, numbered[:4], [0, 1, 2, 3]),
    (['0', '2'], NAMES, [0, 2]),
    (['1', '3'], ['00', '01', '02', '03'], [1, 3]),
    (['3', '1'], ['1.0', '3.0', '5.0'], [1, 0]),
  ):
    assert scores.class_map(dataset, model).tolist() == want
  for dataset, model in (
    (['cow', 'elk'], NAMES),
    (NAMES[:3], numbered),
    (['0', '1', '2'], ['1', '2', '3', '4']),  # Grades, which are no places.
    (['0', '1', '2'], ['01', '02', '03', '04']),
    (['1', '2', '3'], NAMES),  # Numbered from 1, it seems.
  ):
    with pytest.raises(errors.UserError, match='It does not know . of them'):
      scores.class_map(dataset, model)
  with pytest.raises(errors.UserError, match='know 1 of them: 10. It knows 01'):
    scores.class_map(['10'], ['01', '02'])


@pytest.fixture
def weights():
  weights = checkpoint.read(GOLDEN / 'vit_token.npz')
  head = weights.params['head']
  weights.params['head'] = {k: v[..., :3] for k, v in head.items()}
  classes = ['red', 'blue', 'green']
  return predictor_lib.weights_lib.dataclasses.replace(
    weights, class_names=classes
  )


def test_predictions_agree_with_probabilities(weights, tmp_path):
  folder = make_image_folder(tmp_path / 'x')
  source = sources.get_source(str(folder), 'test')
  assert source.class_names == ['blue', 'green', 'red']
  predictor = predictor_lib.Predictor(weights, batch_size=4)
  rows = predictor.probabilities(source)
  said = scores.predict(rows, predictor.labels, source)
  names = [source[i]['name'] for i in range(len(source))]
  rows = np.stack([row for _, row in predictor.probabilities(names)])
  np.testing.assert_array_equal(said.best, np.argsort(-rows, axis=1))
  np.testing.assert_allclose(said.confidence, rows.max(axis=1), rtol=1e-5)
  labels = [weights.class_names.index(n.split('/')[-2]) for n in names]
  assert said.labels.tolist() == labels
  want = rows[np.arange(len(rows)), labels]
  np.testing.assert_allclose(said.probability, want, rtol=1e-5)


@pytest.mark.slow
def test_command_prints_part_of_its_file(tmp_path):
  args = (
    'evaluate',
    f'--model={tmp_path}/artifact',
    '--dataset=digits',
    f'--output={tmp_path}/new/out.json',
  )
  golden = checkpoint.read(GOLDEN / 'vit_token.npz')
  model = {**golden.model, 'patches': {'size': (4, 4)}}
  params = models.init_params(
    models.from_config(model, num_classes=10), (8, 8, 1)
  )
  rng = np.random.default_rng(0)
  kernel = params['head']['kernel']
  params['head']['kernel'] = rng.normal(size=kernel.shape).astype(np.float32)
  made = predictor_lib.weights_lib.Weights(
    artifact.to_numpy(params),
    model,
    [str(i) for i in range(10)],
    preprocessing.Preprocessing((8, 8), channels=1),
  )
  artifact.save(tmp_path / 'artifact', made)
  result = call_command(*args, '--probes=knn,5shot')
  assert result.returncode == 0, result.stderr
  short = json.loads(result.stdout)
  whole = json.loads((tmp_path / 'new' / 'out.json').read_text())
  assert set(short) < set(whole)
  assert whole['examples_test'] == 360
  again = vit_jax.load(tmp_path / 'artifact').evaluate('digits')
  assert {k: whole[k] for k in again} == json.loads(json.dumps(again))
  assert np.array(whole['confusion'])[:, 2].sum() == 360
  assert sum(c['examples'] for c in whole['classes'].values()) == 360
  # Random features are good enough for digits.
  assert (
    whole['accuracy_knn']
    > whole['accuracy_5shot']
    > 0.3
    > whole['accuracy_test']
  )
  result = call_command(*args, '--real')
  assert result.returncode == 1
  assert 'labels are those of ImageNet, but the 10 classes' in result.stderr
  assert 'Traceback' not in result.stderr
  with pytest.raises(errors.UserError, match="no probe 'tree'"):
    probes.shots('tree')


@pytest.mark.slow
@pytest.mark.parametrize(
  ('model', 'why'),
  [
    ('hf_vit_model', 'These weights have no head'),
    ('vit_token.npz', 'It does not know 3 of them: blue, green, red'),
  ],
)
def test_probes_need_no_head_of_the_classes(model, why, image_folder, caplog):
  args = (
    'evaluate', f'--model={GOLDEN / model}', f'--dataset={image_folder}'
  )  # fmt: skip
  result = call_command(*args, '--probes=knn')
  assert result.returncode == 0, result.stderr
  assert 'Only the probes are measured.' in caplog.text
  assert why in caplog.text
  scores_of = json.loads(result.stdout)
  assert scores_of['accuracy_knn'] > 0.5
  assert 'accuracy_test' not in scores_of
  for words in ((), ('--probes=knn', '--predictions=rows.csv')):
    result = call_command(*args, *words)
    assert result.returncode == 1
    assert why in result.stderr


def test_class_names_are_equal_in_both_unicode_forms():
  composed, decomposed = 'caf\xe9', 'cafe\u0301'
  for dataset, model in ((composed, decomposed), (decomposed, composed)):
    assert scores.class_map([dataset], ['x', model]).tolist() == [1]
