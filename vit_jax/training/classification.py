"""Classification: one class an image."""

from vit_jax import models
from vit_jax.configs import arguments
from vit_jax.data import batching
from vit_jax.evaluation import evaluator
from vit_jax.training import resolve
from vit_jax.training import stages as stages_lib
from vit_jax.training import task as task_lib
from vit_jax.training import update
from vit_jax.weights import initial


def make_task(
  run: resolve.Run, data: batching.Data | None = None
) -> task_lib.Task:
  """Returns the task of classifying images.

  Args:
    run: what to do.
    data: None makes it of the splits of the run.
  """
  config = run.config
  data = data or batching.of_config(config, run.splits)
  model = models.from_config(
    arguments.of_model(config), num_classes=len(data.class_names)
  )
  loss_fn = update.make_loss_fn(
    model, data.preprocess.train, config.loss, config.label_smoothing, data.mix
  )
  is_fixed = config.posemb == 'sincos2d'
  stages = stages_lib.make(
    run,
    model,
    loss_fn,
    data.image_shape,
    locked=('Transformer/posembed_input/',) if is_fixed else (),
  )
  shapes = stages[0].like.params
  return task_lib.Task(
    data=data,
    model=model,
    stages=stages,
    initial_params=lambda weights: initial.initial_params(
      config, model, shapes, data.image_shape, weights
    ),
    eval_fn=evaluator.make_eval_fn(
      model,
      data,
      run.mesh,
      loss=config.loss,
      batch_size=config.batch_eval,
      probe_names=config.evaluators,
    ),
  )
