"""Distillation: what the loss is, what the teacher sees, and which teachers fit."""

import dataclasses
import json
import shutil

import flax.traverse_util
import jax
import jax.numpy as jnp
from made import random_weights
import ml_collections
import newer_parts
import numpy as np
from pictures import picture
from processes import run
import pytest
from runs import arguments
from runs import assert_resumes
from runs import flat
from runs import rows
from runs import tiny

from vit_jax import predictor as predictor_lib
from vit_jax import train
from vit_jax.data import preprocessing
from vit_jax.data.augmentation import augment
from vit_jax.models import distillation as distillation_lib
from vit_jax.models import losses
from vit_jax.planning import compilation
from vit_jax.planning import plan
from vit_jax.runtime import errors
from vit_jax.runtime import sharding
from vit_jax.runtime import workdir as workdir_lib
from vit_jax.training import distillation
from vit_jax.training import evaluate
from vit_jax.training import resolve
from vit_jax.training import tasks
from vit_jax.training import teachers
from vit_jax.weights import artifact

CLASSES = ['blue', 'green', 'red']
SHAPE = (32, 48, 3)  # The student's images have 16 x 24 pixels.


def teacher_weights(**changes):
  model = tiny('digits').model.to_dict()
  weights = random_weights(model, num_classes=3, shape=SHAPE)
  weights = dataclasses.replace(weights, class_names=CLASSES)
  return dataclasses.replace(weights, **changes)


@pytest.fixture(scope='module')
def teacher(tmp_path_factory):
  folder = tmp_path_factory.mktemp('teacher') / 'artifact'
  artifact.save(folder, teacher_weights())
  return folder


def get_config(folder, teacher, **settings):
  config = tiny(folder)
  config.distill.teacher = str(teacher)
  config.total_steps = config.eval_every = config.checkpoint_every = 4
  config.warmup_steps, config.progress_every = 0, 1
  config.update(settings)
  return config


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
    atol = 0.02 if interpolation == 'bicubic' else 1e-4
    np.testing.assert_allclose(got, want, atol=atol)


@pytest.fixture
def batch():
  pixels = np.stack([picture(i, 16, 24) for i in range(4)])
  return {'image': jnp.asarray(pixels), 'label': jnp.array([0, 2, 1, 1])}


def task_of(config):
  return tasks.make(resolve.resolve(config, sharding.make_mesh()))


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
  own = task.model.apply(
    {'params': params},
    augment.normalize(batch['image']),
    train=False,
  )
  seen = augment.resize(batch['image'], SHAPE[:2])
  what = task.teacher.weights
  answers = what.module().apply(
    {'params': what.params},
    augment.normalize(seen, (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)),
    train=False,
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


@pytest.mark.slow
def test_runs_with_a_teacher_resume_bit_for_bit(
  image_folder, teacher, tmp_path
):
  copy = tmp_path / 'copy'
  shutil.copytree(teacher, copy)
  config = get_config(image_folder, copy, dtype='bfloat16', lora_rank=2)
  config.pp.mixup = config.pp.cutmix = 1.0
  assert_resumes(config, tmp_path)
  workdir = tmp_path / 'parts'
  names = set().union(*rows(workdir))
  assert {distillation.LABEL_LOSS, distillation.TEACHER_LOSS} <= names
  info = json.loads((workdir / 'artifact' / 'config.json').read_text())['info']
  assert info['teacher'] == str(copy)

  config.distill.teacher = ''
  with pytest.raises(errors.UserError, match='then, none now'):
    train.train_and_evaluate(config, str(workdir))
  # An evaluation does not need it.
  config.distill.teacher = str(copy)
  shutil.rmtree(copy)
  assert evaluate.evaluate(config, str(workdir))['step'] == 4


def test_resuming_with_another_teacher_is_refused(
  image_folder, teacher, tmp_path
):
  workdir = workdir_lib.at(tmp_path)
  first = task_of(get_config(image_folder, teacher)).teacher
  teachers.check(workdir, first, resumed=False)
  assert json.loads(workdir.teacher.read_text()) == first.facts()
  teachers.check(workdir, first, resumed=True)
  weights = teacher_weights()
  weights.params['head']['bias'][0] += 1
  artifact.save(tmp_path / 'other', weights)
  other = task_of(get_config(image_folder, tmp_path / 'other')).teacher
  with pytest.raises(errors.UserError, match=r'teacher has changed .* then, '):
    teachers.check(workdir, other, resumed=True)
  with pytest.raises(errors.UserError, match='then, none now. Set config.dist'):
    teachers.check(workdir, None, resumed=True)
  # A run that begins again without a teacher forgets the old one.
  teachers.check(workdir, None, resumed=False)
  teachers.check(workdir, None, resumed=True)


def test_teacher_is_an_argument_of_the_program_and_in_no_checkpoint(
  image_folder, teacher
):
  config = get_config(image_folder, teacher)
  run = plan.resolve_here(config, sharding.make_mesh(), 3)
  data = compilation.batching.of_config(run.config, run.splits)
  data.test.source.class_names[:] = CLASSES
  task = tasks.make(run, data, plan.read_teacher)
  stage, traced = compilation.trace_step(run, task)
  assert sum(np.size(x) for x in traced.jaxpr.consts) < 1000
  size = compilation.device_bytes(task.teacher.like)
  assert size == sum(
    x.nbytes for x in jax.tree.leaves(teacher_weights().params)
  )
  arguments = sum(x.aval.size for x in traced.jaxpr.jaxpr.invars)
  state = sum(np.prod(x.shape) for x in jax.tree.leaves(stage.like))
  assert arguments - state >= size / 4
  names = flax.traverse_util.flatten_dict(stage.like.params, sep='/')
  assert names['Transformer/posembed_input/pos_embedding'].shape[1] == 7


def refused(folder, config, weights, message, tmp_path):
  artifact.save(tmp_path / 'other', weights)
  config.distill.teacher = str(tmp_path / 'other')
  with pytest.raises(errors.UserError, match=message) as error:
    task_of(config).teacher.weights  # noqa: B018
  assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
  'changes, message',
  [
    ({'task': 'multilabel'}, 'the task multilabel, but config.task is multicl'),
    ({'class_names': ()}, 'teacher is .*These weights have no head'),
  ],
)
def test_teachers_that_do_not_fit_are_refused(
  image_folder, tmp_path, changes, message
):
  config, weights = tiny(image_folder), teacher_weights(**changes)
  if not weights.class_names:
    weights = dataclasses.replace(
      weights, params={k: x for k, x in weights.params.items() if k != 'head'}
    )
  refused(image_folder, config, weights, message, tmp_path)


def test_classes_are_matched_by_name_or_refused(image_folder, tmp_path, caplog):
  pixels = np.stack([picture(i, *SHAPE[:2]) for i in range(2)])
  weights = teacher_weights()
  model = weights.model
  many = random_weights(model, num_classes=5, shape=SHAPE)
  names = ['red', 'x', 'blue', 'y', 'green']
  many = dataclasses.replace(many, class_names=names)
  artifact.save(tmp_path / 'many', many)
  task = task_of(get_config(image_folder, tmp_path / 'many'))
  images = task.data.preprocess.eval(pixels[:, ::2, ::2])
  found = task.teacher.logits(task.teacher.put(), images)
  renamed = dataclasses.replace(many, class_names=[*'abcde'])
  refused(
    image_folder,
    get_config(image_folder, ''),
    renamed,
    r"has 5 classes \('a', ...\), but the images have 3, and 'blue' is not one",
    tmp_path,
  )
  seen = task.data.preprocess.for_model(images, many.preprocessing)
  logits = many.module().apply({'params': many.params}, seen, train=False)
  np.testing.assert_allclose(found, logits[:, [2, 4, 0]], atol=1e-5)
  assert predictor_lib.Predictor(many).labels == names

  artifact.save(tmp_path / 'abc', teacher_weights(class_names=[*'abc']))
  with caplog.at_level('WARNING'):
    teacher = task_of(get_config(image_folder, tmp_path / 'abc')).teacher
    assert teacher.weights.class_names == [*'abc']
  assert "other names for its 3 classes: 'a' is taken as 'blue'" in caplog.text


def test_teachers_that_are_not_here_are_named(image_folder):
  config = get_config(image_folder, 'nowhere/weights.npz')
  with pytest.raises(errors.UserError, match='teacher is .*no checkpoint file'):
    task_of(config).teacher.put()
  with pytest.raises(errors.UserError, match='nowhere/weights.npz is not here'):
    plan.read_teacher(config.distill.teacher, 'checkpoints')


@pytest.mark.slow
def test_eight_devices_equal_one(image_folder, teacher, tmp_path):
  config = get_config(image_folder, teacher, batch=16, optimizer='sgd')
  train.train_and_evaluate(config, str(tmp_path / 'one'))
  words = arguments(image_folder, tmp_path / 'eight')
  settings = {'distill.teacher': teacher, 'batch': 16, 'optimizer': 'sgd'}
  settings |= {'total_steps': 4, 'warmup_steps': 0, 'mesh.fsdp': 4}
  flags = [f'--config.{name}={value}' for name, value in settings.items()]
  result = run(*words, *flags, devices=8)
  assert result.returncode == 0, result.stderr
  one, eight = flat(tmp_path / 'one'), flat(tmp_path / 'eight')
  for name, x in eight.items():
    np.testing.assert_allclose(x, one[name], atol=1e-4, err_msg=name)
