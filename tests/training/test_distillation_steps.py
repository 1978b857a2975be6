"""Distillation: what the loss is, what the teacher sees, what a step learns."""

import functools

import jax
import jax.numpy as jnp
from made import applied
from made import random_weights
import ml_collections
import newer_parts
import numpy as np
from pictures import picture
import pytest
from taught import get_config
from taught import SHAPE
from taught import task_of
from taught import teacher_weights

from vit_jax.data import preprocessing
from vit_jax.data.augmentation import augment
from vit_jax.models import distillation as distillation_lib
from vit_jax.models import losses
from vit_jax.runtime import sharding
from vit_jax.training import distillation
from vit_jax.training import resolve
from vit_jax.training import teachers


def softmax(x):
  return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def test_soft_loss_is_the_divergence_times_temperature_squared():
  rng = np.random.default_rng(0)
  student, teacher = jnp.float32(rng.normal(0, 3, (2, 4, 5)))
  loss = distillation_lib.soft('softmax', losses.softmax_cross_entropy, 2.0)
  p, q = softmax(teacher / 2), softmax(student / 2)
  want = 4 * (p * np.log(p / q)).sum(-1)
  np.testing.assert_allclose(loss(student, teacher), want, rtol=1e-5)
  np.testing.assert_allclose(loss(teacher, teacher), 0, atol=1e-5)

  loss = distillation_lib.soft('sigmoid', losses.multilabel_cross_entropy, 2.0)
  p, q = (1 / (1 + np.exp(-x / 2)) for x in (teacher, student))
  terms = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
  np.testing.assert_allclose(
    loss(student, teacher), 4 * terms.sum(-1), rtol=1e-4
  )


def test_student_of_another_loss_learns_the_probabilities_of_the_teacher():
  teacher = jnp.float32(np.random.default_rng(0).normal(7, 3, (4, 5)))
  convert = distillation_lib.as_logits_of
  np.testing.assert_allclose(
    jax.nn.sigmoid(convert('sigmoid', teacher, 'softmax')),
    softmax(teacher),
    rtol=1e-4,
  )
  p = 1 / (1 + np.exp(-teacher))
  np.testing.assert_allclose(
    jax.nn.softmax(convert('softmax', teacher, 'sigmoid')),
    p / p.sum(-1, keepdims=True),
    rtol=1e-5,
  )
  for loss in ('softmax', 'sigmoid'):
    assert (convert(loss, teacher, loss) == teacher).all()
  certain = convert('sigmoid', jnp.array([[0.0, 1e4]]), 'softmax')
  assert np.isfinite(certain).all(), certain


@pytest.mark.parametrize('student', ['softmax', 'sigmoid'])
@pytest.mark.parametrize('loss', ['softmax', 'sigmoid'])
def test_logits_of_a_teacher_are_of_the_loss_of_the_run(
  image_folder, loss, student
):
  weights = teacher_weights(loss=loss)
  config = get_config(image_folder, '', loss=student)
  run = resolve.resolve(config, sharding.make_mesh())
  data = task_of(config).data
  teacher = teachers.Teacher(
    run.config, data, run.mesh, read=lambda *_: weights
  )
  pixels = jnp.float32(np.random.default_rng(0).normal(size=(2, 16, 24, 3)))
  found = teacher.logits(teacher.put(), pixels)
  seen = data.preprocess.for_model(pixels, weights.preprocessing)
  raw = applied(weights, seen)
  want = distillation_lib.as_logits_of(student, raw, loss)
  np.testing.assert_allclose(found, want, atol=0.05)


def test_weights_of_images_hold_for_labels_and_teacher():
  rng = np.random.default_rng(0)
  logits, taught, answers = jnp.float32(rng.normal(0, 3, (3, 4, 5)))
  labels, weights = jnp.array([0, 2, 1, 4]), jnp.array([1.0, 0.0, 3.0, 0.5])
  plain = losses.softmax_cross_entropy
  of_teacher = distillation_lib.soft('softmax', plain, 2.0)
  loss = distillation_lib.Distillation(plain, of_teacher, weight=0.25)
  total, *parts = loss(logits, taught, labels, answers, weights)
  want = [
    np.mean(weights * plain(logits, labels)),
    np.mean(weights * of_teacher(taught, answers)),
  ]
  np.testing.assert_allclose(parts, want, rtol=1e-6)
  np.testing.assert_allclose(total, 0.75 * want[0] + 0.25 * want[1], rtol=1e-6)


def test_teacher_sees_the_image_as_it_was_trained():
  pixels = picture(0, 16, 24)[None]
  student = augment.Preprocess(size=(16, 24), mean=(0.1, 0.2, 0.3), std=(0.5,))
  for interpolation, resize in augment.RESIZES.items():
    other = preprocessing.Preprocessing(
      size=(32, 20),
      mean=(0.4,),
      std=(0.2, 0.3, 0.4),
      interpolation=interpolation,
    )
    got = student.for_model(student.eval(pixels), other)
    want = augment.normalize(resize(pixels, (32, 20)), (0.4,), (0.2, 0.3, 0.4))
    # Pillow's resizing rounds to whole numbers.
    atol = 1e-4 if interpolation == 'bilinear' else 0.02
    np.testing.assert_allclose(got, want, atol=atol)


@pytest.fixture
def batch():
  pixels = np.stack([picture(i, 16, 24) for i in range(4)])
  return {'image': jnp.asarray(pixels), 'label': jnp.array([0, 2, 1, 1])}


@pytest.mark.slow
@pytest.mark.parametrize('how', ['soft', 'hard'])
def test_step_equals_the_formula(image_folder, teacher, batch, how):
  config = get_config(image_folder, teacher, accum_steps=1, pp={'flip': False})
  config.distill.update(loss=how, weight=0.3, temperature=2.0)
  config.label_smoothing, config.optimizer = 0.1, 'sgd'
  config.stochastic_depth_rate = config.model.transformer.dropout_rate = 0.0
  # Images are neither cropped nor mirrored, so evaluation sees the same.
  config.pp.update(crop_area=(1.0, 1.0), crop_ratio=(1.5, 1.5))
  task = task_of(config)
  params = random_weights(
    config.model.to_dict(), num_classes=3, shape=(16, 24, 3)
  ).params
  state = task.stages[0].new_state(params)
  apply = jax.jit(functools.partial(task.model.apply, train=False))
  own = apply({'params': params}, augment.normalize(batch['image']))
  seen = augment.resize(batch['image'], SHAPE[:2])
  what = task.teacher.weights
  answers = applied(
    what, augment.normalize(seen, (0.4, 0.5, 0.6), (0.2, 0.25, 0.3))
  )
  _, metrics = task.stages[0].step(
    state, batch, jax.random.key(0), task.teacher.put()
  )
  labels = losses.softmax_cross_entropy(own, batch['label'], 0.1).mean()
  if how == 'soft':
    p, q = softmax(np.float64(answers) / 2), softmax(np.float64(own) / 2)
    taught = 4 * (p * np.log(p / q)).sum(-1).mean()
  else:
    taught = losses.softmax_cross_entropy(own, jnp.argmax(answers, -1)).mean()
  accuracy = np.mean(np.argmax(answers, -1) == batch['label'])
  got = {k: float(x) for k, x in metrics.items()}
  assert got[distillation.LABEL_LOSS] == pytest.approx(float(labels), rel=1e-4)
  assert got[distillation.TEACHER_LOSS] == pytest.approx(
    float(taught), rel=1e-3
  )
  assert got[distillation.TEACHER_ACCURACY] == accuracy
  want = 0.7 * labels + 0.3 * taught
  assert got['train_loss'] == pytest.approx(float(want), rel=1e-3)


@pytest.mark.slow
def test_distillation_token_learns_from_the_teacher_alone(
  image_folder, teacher, batch
):
  changed = {}
  for weight in (1e-3, 1.0):
    config = get_config(image_folder, teacher, accum_steps=1, optimizer='sgd')
    config.model = ml_collections.ConfigDict(newer_parts.MODELS['deit'])
    config.distill.weight = weight
    task = task_of(config)
    state = task.stages[0].new_state(task.initial_params(None))
    before = jax.tree.map(np.array, state.params)
    after, _ = task.stages[0].step(
      state, batch, jax.random.key(0), task.teacher.put()
    )
    changed[weight] = {
      name: float(
        np.abs(after.params[name]['bias'] - before[name]['bias']).max()
      )
      for name in ('head', 'head_dist')
    }
  assert changed[1.0]['head'] == 0 < changed[1.0]['head_dist']
  assert changed[1e-3]['head'] > 100 * changed[1e-3]['head_dist'] > 0
