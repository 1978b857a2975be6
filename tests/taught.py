"""A small teacher, and runs that learn from one."""

import dataclasses

from made import random_weights
from runs import tiny

from vit_jax.runtime import sharding
from vit_jax.training import resolve
from vit_jax.training import tasks

CLASSES = ['blue', 'green', 'red']
SHAPE = (32, 48, 3)  # The student's images have 16 x 24 pixels.


def teacher_weights(**changes):
  model = tiny('digits').model.to_dict()
  weights = random_weights(model, num_classes=3, shape=SHAPE)
  weights = dataclasses.replace(weights, class_names=CLASSES)
  return dataclasses.replace(weights, **changes)


def get_config(folder, teacher, **settings):
  config = tiny(folder)
  config.distill.teacher = str(teacher)
  config.total_steps = config.eval_every = config.checkpoint_every = 4
  config.warmup_steps, config.progress_every = 0, 1
  config.update(settings)
  return config


def task_of(config):
  return tasks.make(resolve.resolve(config, sharding.make_mesh()))
