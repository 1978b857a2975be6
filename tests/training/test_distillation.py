"""Teachers: which fit a run, where they are, and runs that learn from one."""

import dataclasses
import json
import shutil

import flax.traverse_util
import jax
from made import applied
from made import random_weights
import numpy as np
from pictures import picture
from processes import run
import pytest
from runs import arguments
from runs import assert_resumes
from runs import flat
from runs import rows
from runs import tiny
from taught import CLASSES
from taught import get_config
from taught import SHAPE
from taught import task_of
from taught import teacher_weights

from vit_jax import predictor as predictor_lib
from vit_jax import train
from vit_jax.planning import compilation
from vit_jax.planning import plan
from vit_jax.runtime import errors
from vit_jax.runtime import sharding
from vit_jax.runtime import workdir as workdir_lib
from vit_jax.training import distillation
from vit_jax.training import evaluate
from vit_jax.training import tasks
from vit_jax.training import teachers
from vit_jax.weights import artifact


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
  teachers.check_begun(workdir, first.config)
  with pytest.raises(errors.UserError, match=r'teacher has changed .* then, '):
    teachers.check_begun(workdir, other.config)
  with pytest.raises(errors.UserError, match='then, none now. Set config.dist'):
    teachers.check(workdir, None, resumed=True)
  # A run that begins again without a teacher forgets the old one.
  teachers.check(workdir, None, resumed=False)
  teachers.check(workdir, None, resumed=True)


def test_other_hosts_read_the_teacher_and_compare_nothing(
  image_folder, teacher, tmp_path, monkeypatch
):
  workdir = workdir_lib.at(tmp_path)
  found = task_of(get_config(image_folder, teacher)).teacher
  monkeypatch.setattr('jax.process_index', lambda: 1)
  monkeypatch.setattr(teachers.Teacher, 'facts', None)
  teachers.check(workdir, found, resumed=False)
  assert 'weights' in vars(found)  # All hosts read them at the same time.
  assert not workdir.teacher.exists()


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


@pytest.mark.slow
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
  logits = applied(many, seen)
  np.testing.assert_allclose(found, logits[:, [2, 4, 0]], atol=1e-5)
  assert predictor_lib.Predictor(many).labels == names

  artifact.save(tmp_path / 'abc', teacher_weights(class_names=[*'abc']))
  with caplog.at_level('WARNING'):
    teacher = task_of(get_config(image_folder, tmp_path / 'abc')).teacher
    assert teacher.weights.class_names == [*'abc']
  assert "other names for its 3 classes: 'a' is taken as 'blue'" in caplog.text


def test_teachers_know_classes_of_imagenet_by_their_ids(image_folder):
  ids = dict(zip(CLASSES, ('n01443537', 'n01629819', 'n12267677'), strict=True))
  for path in sorted(image_folder.glob('*/*')):
    path.rename(path.with_name(ids[path.name]))
  task = task_of(get_config(image_folder, 'ViT-Mini_8'))
  pixels = np.stack([picture(i, *SHAPE[:2]) for i in range(2)])
  images = task.data.preprocess.eval(pixels[:, ::2, ::2])
  found = task.teacher.logits(task.teacher.put(), images)
  weights = task.teacher.weights
  assert weights.class_names[0] == 'goldfish'
  seen = task.data.preprocess.for_model(images, weights.preprocessing)
  logits = applied(weights, seen)
  np.testing.assert_allclose(found, logits[:, [0, 1, 199]], atol=1e-5)


def test_teachers_that_are_not_here_are_named(image_folder):
  config = get_config(image_folder, 'nowhere/weights.npz')
  with pytest.raises(errors.UserError, match='teacher is .*no checkpoint file'):
    task_of(config).teacher.put()
  config.distill.teacher = 'ViT-B_61'
  with pytest.raises(errors.UserError) as e:
    task_of(config).teacher.put()
  assert str(e.value).startswith("config.distill.teacher is 'ViT-B_61': ")
  assert 'pretrained' not in str(e.value)
  config.distill.teacher = 'nowhere/weights.npz'
  with pytest.raises(errors.UserError, match='nowhere/weights.npz is not here'):
    plan.read_teacher(config.distill.teacher, 'checkpoints')


def test_plans_find_the_teacher_of_the_package(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  teacher = plan.read_teacher('ViT-Mini_8', 'checkpoints')
  assert len(teacher.class_names) == 200
  with pytest.raises(errors.UserError, match='ViT-B_16 is not here'):
    plan.read_teacher('ViT-B_16', 'gs://vit_models/imagenet21k')


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
