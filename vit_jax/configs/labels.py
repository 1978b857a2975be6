"""What images are labelled with, and the losses and metrics that go with it."""

from collections.abc import Mapping

import ml_collections

from vit_jax.configs import images
from vit_jax.configs import spec
from vit_jax.runtime import errors

# One class an image; any number of classes; one or more numbers.
MULTICLASS, MULTILABEL, REGRESSION = 'multiclass', 'multilabel', 'regression'
TASKS = (MULTICLASS, MULTILABEL, REGRESSION)

# Losses of each task; the first is the default.
LOSSES: Mapping[str, tuple[str, ...]] = {
  MULTICLASS: ('softmax', 'sigmoid'),
  MULTILABEL: ('sigmoid',),
  REGRESSION: ('l2', 'l1', 'huber'),
}

# Metrics that can choose the best checkpoint; the first is the default.
METRICS: Mapping[str, tuple[str, ...]] = {
  MULTICLASS: (
    'accuracy_test',
    'balanced_accuracy_test',
    'f1_test',
    'kappa_test',
    'top5_test',
    'loss_test',
  ),
  MULTILABEL: ('map_test', 'f1_test', 'loss_test'),
  REGRESSION: (
    'mae_test',
    'rmse_test',
    'r2_test',
    'spearman_test',
    'loss_test',
  ),
}

# For these metrics, lower is better.
ERRORS = ('loss_test', 'mae_test', 'rmse_test')

# The field of `config.columns` that names the column of each task.
COLUMNS: Mapping[str, str] = {
  MULTICLASS: 'label',
  MULTILABEL: 'labels',
  REGRESSION: 'target',
}

# Settings that a task does not support.
_UNSUPPORTED: Mapping[str, tuple[str, ...]] = {
  MULTILABEL: (
    'label_smoothing',
    'evaluators',
    'pp.shots',
    'pp.balance_classes',
  ),
  REGRESSION: (
    'label_smoothing',
    'evaluators',
    'pp.shots',
    'pp.balance_classes',
    'class_weights',
    'focal_gamma',
    'distill.teacher',
    'pp.mixup',
    'pp.cutmix',
    'pp.holdout',
  ),
}


def every(choices: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
  """Returns the choices of all tasks, each once."""
  return tuple(dict.fromkeys(x for names in choices.values() for x in names))


def has_captions(config: ml_collections.ConfigDict) -> bool:
  """Whether images have texts, not labels, also where weights decide the model."""
  trainers = config.trainer, config.get('sweep', {}).get('trainer')
  return 'contrastive' in trainers or spec.has_texts(config.model)


def complete(
  config: ml_collections.ConfigDict, task: str
) -> ml_collections.ConfigDict:
  """Returns a copy with task, loss and metric; checks what depends on them.

  Raises:
    errors.UserError: if a setting does not go with the task.
  """
  config = config.copy_and_resolve_references().unlock()
  config.task = task
  for name, choices in (('loss', LOSSES), ('best_metric', METRICS)):
    if config[name] is None:
      config[name] = choices[task][0]
    elif config[name] not in choices[task]:
      raise errors.UserError(
        f'config.{name} is {config[name]!r}, must be one of {choices[task]}: the'
        f' task is {task}.'
      )
  preset = images.preset(config.pp.augmentation)
  for name in _UNSUPPORTED.get(task, ()):
    group, _, field = name.rpartition('.')
    if value := (config[group] if group else config)[field]:
      if preset.get(name):
        name, value = 'pp.augmentation', config.pp.augmentation
      raise errors.UserError(
        f'config.{name} is {value!r}, but the task is {task}, which it does not'
        f' apply to. Leave it out.'
      )
  has_temperature = config.loss == 'softmax' and not has_captions(config)
  if task == MULTICLASS and config.pp.holdout and not has_temperature:
    raise errors.UserError(
      f'config.pp.holdout is {config.pp.holdout!r}, which would decide nothing: it'
      f" is for images of one class with config.loss='softmax' (the temperature)"
      f' and of several classes (the thresholds). Leave it out.'
    )
  return config.lock()
