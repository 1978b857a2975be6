"""The task of a run: classes, numbers, or texts (contrastive learning, LiT)."""

from collections.abc import Callable, Sequence
import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax

from vit_jax import models
from vit_jax.configs import arguments
from vit_jax.configs import spec
from vit_jax.data import batching
from vit_jax.data import captions
from vit_jax.data import numbers
from vit_jax.data.augmentation import transforms
from vit_jax.data.texts import text
from vit_jax.evaluation import evaluator
from vit_jax.runtime import sharding
from vit_jax.training import adapters
from vit_jax.training import contrastive
from vit_jax.training import distillation
from vit_jax.training import outputs
from vit_jax.training import resolve
from vit_jax.training import stages as stages_lib
from vit_jax.training import teachers
from vit_jax.training import update
from vit_jax.weights import initial
from vit_jax.weights import released


@dataclasses.dataclass(frozen=True)
class Task:
  """Data, model, stages and evaluation.

  Attributes:
    data: both splits.
    model: the module, for the log and its FLOPs.
    stages: the stages of the run, in order.
    initial_params: maps pretrained weights, or None, to parameters.
    eval_fn: maps parameters to metrics, including `config.best_metric`.
    vocabulary: file of the tokeniser, if there are texts.
    fit: maps parameters to the fields of `Weights` that held-out images decide.
    scale: that of the numbers that the model predicts, if they are numbers.
    teacher: the trained model, or None; its parameters are the last argument of each
      step.
  """

  data: batching.Data
  model: nn.Module
  stages: Sequence[stages_lib.Stage]
  initial_params: Callable[..., dict[str, Any]]
  eval_fn: evaluator.EvalFn
  vocabulary: str | None = None
  fit: Callable[[Any], dict[str, Any]] = lambda params: {}
  scale: numbers.Scale | None = None
  teacher: teachers.Teacher | None = None


def make(
  run: resolve.Run,
  data: batching.Data | None = None,
  read_teacher: teachers.Reader = resolve.read_weights,
) -> Task:
  """Returns the task of a run; it is contrastive if the model has a text tower.

  Without `data` it reads the splits of the run, and finds the vocabulary.
  `read_teacher` is `read` of `teachers.Teacher`.

  Raises:
    errors.UserError: if the captions or the vocabulary do not fit the model.
  """
  if spec.has_texts(run.config.model):
    return _contrastive(run, data)
  return _images(run, data, read_teacher)


def _images(
  run: resolve.Run, data: batching.Data | None, read_teacher: teachers.Reader
) -> Task:
  config = run.config
  data = data or batching.of_config(config, run.splits)
  model = models.from_config(
    arguments.of_model(config), num_classes=len(data.class_names)
  )
  what = outputs.of_task(config, data)
  merge = adapters.merger(config)
  preprocess = data.preprocess.train
  teacher = teachers.of_config(config, data, run.mesh, read_teacher)
  loss_fn: Callable[..., Any]
  step: stages_lib.Step
  if teacher:
    step = distillation.train_step
    loss_fn = distillation.make_loss_fn(
      model,
      preprocess,
      what.with_teacher(teacher.decide),
      data.mix,
      merge,
      teacher.logits,
    )
  else:
    step = update.train_step
    loss_fn = update.make_loss_fn(
      model, preprocess, what.train_loss, data.mix, merge
    )
  locked = ['Transformer/posembed_input/'] * (config.posemb == 'sincos2d')
  stages = stages_lib.make(
    run,
    model,
    loss_fn,
    data.image_shape,
    train_step=step,
    locked=[*locked, *adapters.locked(config)],
    extend=functools.partial(adapters.extend, config),
  )
  adapters.check_trained(config, stages)
  shapes = models.abstract_params(model, data.image_shape)
  merge = jax.jit(merge) if config.lora_rank else merge
  eval_fn = what.make_eval_fn(model, run.mesh)
  fit = what.make_fit(model, run.mesh)
  return Task(
    data=data,
    model=model,
    stages=stages,
    initial_params=lambda weights: adapters.add(
      config,
      initial.initial_params(config, model, shapes, data.image_shape, weights),
    ),
    eval_fn=lambda params: eval_fn(merge(params)),
    fit=lambda params: fit(merge(params)),
    scale=what.scale,
    teacher=teacher,
  )


def _contrastive(run: resolve.Run, data: batching.Data | None) -> Task:
  config, mesh = run.config, run.mesh
  model = models.from_config(arguments.of_model(config))
  vocabulary = None
  if data is None:
    with sharding.first_process_first():
      vocabulary = released.find_vocabulary(
        config.model, config.vocabulary, config.pretrained_dir
      )
    data = _caption_data(run, model, vocabulary)
  loss_fn = contrastive.make_loss_fn(
    model, data.preprocess.train, config.loss, config.label_smoothing
  )
  embed = functools.partial(
    contrastive.embed_step, model=model, preprocess=data.preprocess.eval
  )
  # Replicated, so that every host has all embeddings.
  jit_embed = jax.jit(
    sharding.in_mesh(mesh, embed), out_shardings=sharding.replicated(mesh)
  )
  stages = stages_lib.make(
    run,
    model,
    loss_fn,
    data.image_shape,
    train_step=functools.partial(
      contrastive.train_step,
      temperature_max=config.model.get('temperature_max'),
    ),
    locked=contrastive.LOCKED if config.lock_image_tower else (),
  )
  shapes = stages[0].like.params
  return Task(
    data=data,
    model=model,
    stages=stages,
    initial_params=lambda weights: initial.lit_params(
      model,
      weights,
      shapes,
      grid=spec.of(config.model).grid(data.image_shape[:2]),
      seed=config.seed,
    ),
    eval_fn=functools.partial(
      contrastive.run_evaluation,
      jit_embed,
      data=data,
      mesh=mesh,
      batch_size=config.batch_eval,
      loss=config.loss,
    ),
    vocabulary=vocabulary,
  )


def _caption_data(
  run: resolve.Run, model: nn.Module, vocabulary: str
) -> batching.Data:
  """Returns the splits of a run as pairs of an image and tokens."""
  tokenizer = text.of_model(model.pp, model.text, model.vocab_size, vocabulary)
  data = batching.of_config(run.config, run.splits)
  return dataclasses.replace(
    data,
    train_transform=captions.TrainPair(data.train_transform, tokenizer),
    eval_transform=captions.EvalPair(
      transforms.LitImage(
        data.image_shape[:2],
        resize=data.preprocessing.resize_test,
        interpolation=data.preprocessing.interpolation,
      ),
      tokenizer,
    ),
  )
