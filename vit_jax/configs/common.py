"""Every setting, its default, and what it may be; images are in `images`."""

from collections.abc import Sequence
import os
import re

import ml_collections
from ml_collections.config_dict import placeholder

from vit_jax.configs import durations
from vit_jax.configs import images
from vit_jax.configs import models
from vit_jax.configs import registry
from vit_jax.runtime import errors


def get_config() -> ml_collections.ConfigDict:
  """Returns every setting but the model's, locked."""
  config = ml_collections.ConfigDict()
  # 'train', 'contrastive' (images and texts, see `vit_jax.training.contrastive`),
  # 'evaluate' (the newest checkpoint of the workdir) or 'sweep' (`with_sweep`).
  config.trainer = 'train'
  # Of the initialisation, the order of the images, augmentation and dropout.
  config.seed = 0
  _add_model(config)
  _add_data(config)
  _add_training(config)
  _add_contrastive(config)
  _add_events(config)
  # Devices along each axis; -1 takes the rest. See `vit_jax.runtime.sharding`.
  config.mesh = ml_collections.ConfigDict({'data': -1, 'fsdp': 1, 'model': 1})
  return config.lock()


def _add_model(config: ml_collections.ConfigDict) -> None:
  # What to train: see `with_model` and `vit_jax.configs.models`. None: what
  # the pretrained weights are of.
  config.model = None
  # Fine-tuning starts from: an .npz, a .safetensors or a folder with one, an
  # artifact or workdir of another run, a URL, or a name that
  # `vit-jax models` prints. Empty: train from scratch. None:
  # config.model.model_name if `pretrained_dir` is set, as in the official code,
  # else empty.
  config.pretrained = placeholder(str)
  # Where names are looked up, as `<pretrained_dir>/<name>.npz`: a folder, or a
  # bucket such as gs://vit_models/imagenet21k. None: checkpoints.
  config.pretrained_dir = placeholder(str)
  # For images with another number of channels: 'sum' or 'repeat' the kernel of
  # the first layer; '' refuses. See `checkpoint.adapt_kernel`.
  config.adapt_channels = ''
  # Resize that kernel where config.model.patches.size is another.
  config.adapt_patches = False
  # Of the computation, in LiT models of the image tower: 'float32' or 'bfloat16'.
  # Parameters are float32 always.
  config.dtype = 'float32'
  # 'xla', 'cudnn' (GPUs, bfloat16), or 'auto': the faster one, measured when a
  # run begins; a resumed run keeps it.
  config.attention = 'auto'
  # Compute activations again in the backward pass, which takes less memory and
  # more time: '' nothing, 'full' all of a block; with 'dots_saveable' and
  # 'dots_with_no_batch_dims_saveable' products are kept, all or those with
  # weights.
  config.remat = ''
  # One program for all blocks, their parameters stacked: deep models compile
  # faster. Combine it with `remat`.
  config.scan_layers = False
  # Probability of dropping a residual branch of the last block.
  config.stochastic_depth_rate = 0.0
  # None: as the pretrained weights want it; without any, 1e-6 and the tanh
  # approximation, as in the official models. PyTorch's differ.
  config.layer_norm_epsilon = placeholder(float)
  config.exact_gelu = placeholder(bool)
  # Position embeddings: 'learn', or 'sincos2d', fixed (arXiv:2205.01580): weights
  # to start from must have fixed ones too, which are computed for the new grid.
  config.posemb = 'learn'
  # First value of the biases of the head; -log(classes) suits sigmoid losses.
  config.head_bias_init = 0.0


def _add_data(config: ml_collections.ConfigDict) -> None:
  # A folder with {train,test}/<class>/<image>, 'digits', 'cifar10',
  # 'cifar100', or the name of any TFDS data set prepared as array_record.
  # Contrastive training: a folder with {train,test}/captions.tsv.
  config.dataset = ''
  # Where TFDS data sets are, and CIFAR is kept; None: ~/tensorflow_datasets.
  config.tfds_data_dir = placeholder(str)
  # How images are read, cut and augmented: see `vit_jax.configs.images`.
  config.pp = images.get_config()
  # At a file that cannot be decoded: 'raise', or 'skip' and count.
  config.on_bad_image = 'raise'
  # Decoding threads; workers are processes besides, worth it from 8 cores on.
  config.num_threads = 4
  config.num_workers = 0
  # Batches on the host, being made or ready: what the loader takes of memory.
  # Fewer than threads leave threads idle.
  config.prefetch = 4


def _add_training(config: ml_collections.ConfigDict) -> None:
  # Images per step, over all hosts and devices, and in how many parts their
  # gradients are computed, to save memory.
  config.batch = 512
  config.accum_steps = 8
  config.batch_eval = 512
  config.total_steps = placeholder(int)
  # Durations in epochs override durations in steps, except steps set on the
  # command line. An epoch is the images that are trained on.
  for name in durations.EPOCHS.values():
    config[name] = placeholder(float)
  # Peak learning rate, reached after the warm-up. A run that is too short for its
  # warm-up and cool-down trains with a lower one, and a warning.
  config.base_lr = 0.03
  config.warmup_steps = 500
  # 'cosine' to 0, 'linear' to 1e-5, 'rsqrt' (reciprocal square root, at 0.71 of
  # its peak `timescale` steps after the warm-up) or 'constant'.
  config.decay_type = 'cosine'
  config.timescale = 10_000
  # Last steps, over which the learning rate goes linearly to 0 besides.
  config.cooldown_steps = 0
  # Largest global norm of the gradient; 0 for no limit.
  config.grad_norm_clip = 1.0
  # 'sgd', 'adamw', 'lamb' or 'adafactor'.
  config.optimizer = 'sgd'
  # Of SGD and Adafactor; beta1 of AdamW and LAMB.
  config.momentum = 0.9
  # Of AdamW and LAMB; what that of Adafactor grows to (arXiv:2106.04560).
  config.beta2 = 0.999
  # Of the momentum: 'bfloat16' or 'float32'.
  config.optim_dtype = 'bfloat16'
  config.weight_decay = 0.0
  # Which parameters decay: 'kernels' (no biases, norms, class token, position
  # embeddings) or 'all'.
  config.weight_decay_on = 'kernels'
  # The learning rate of each block is this much lower than of the next one; 1
  # for the same (arXiv:2106.08254 has 0.65 to 0.75 in fine-tuning). Not of LiT.
  config.layer_decay = 1.0
  # Radius of Sharpness-Aware Minimisation, which takes two gradients a step; 0
  # for none.
  config.sam_rho = 0.0
  # Decay of a moving average of the parameters, which is evaluated and saved
  # beside them; 0 for none.
  config.ema_decay = 0.0
  # Regular expressions: parameters are frozen where one matches the start of
  # their name, which `scan_layers` does not change. r'(?!head/)' trains the head
  # alone.
  config.freeze = ()
  # Stages of a run, one after the other: dicts of settings for each, of those
  # in `vit_jax.training.stages`, `total_steps` or `total_epochs` among them.
  config.stages = ()
  # 'softmax' or 'sigmoid' cross-entropy, of classes or of pairs.
  config.loss = 'softmax'
  config.label_smoothing = 0.0


def _add_contrastive(config: ml_collections.ConfigDict) -> None:
  # File of the tokeniser: a BERT vocabulary or a SentencePiece model. Empty:
  # that of the released model, `<pretrained_dir>/<name>.txt` or `.model`.
  config.vocabulary = ''
  # First values of what the products of embeddings are multiplied with and, in
  # the sigmoid loss, of what is added (arXiv:2303.15343, Sec. 3.2).
  config.temperature_init = 10.0
  config.bias_init = -10.0


def _add_events(config: ml_collections.ConfigDict) -> None:
  # Steps between two of each; 0 for never. All but the first happen at the
  # last step too.
  config.progress_every = 10
  config.eval_every = 100
  # What is evaluated besides, of the features before the head: '10shot' (any
  # number), 'knn', 'linear'. See `vit_jax.evaluation.probes`; each fits a classifier.
  config.evaluators = ()
  config.checkpoint_every = 1_000
  # (first, last) steps of which a trace is written to workdir/profile; () none.
  config.profile_steps = ()
  # How many of the newest checkpoints are kept, besides the best one.
  config.keep_checkpoints = 2
  # Where metrics go besides workdir/metrics.jsonl: 'tensorboard', 'wandb',
  # 'mlflow'. The last two are extras, of `vit_jax.training.loggers`.
  config.loggers = ('tensorboard',)
  # Leave a page about the run, workdir/report.html, with predictions unless
  # `eval_every` is 0. See `vit_jax.reporting.report`.
  config.report = True


# Splits, input size and steps of the official code. The last parts of the
# training sets of CIFAR and ImageNet are left out, for choosing settings.
DATASET_PRESETS = {
  'cifar10': {
    'total_steps': 10_000,
    'warmup_steps': 500,
    'pp': {'train': 'train[:98%]', 'test': 'test', 'crop': 384},
  },
  'cifar100': {
    'total_steps': 10_000,
    'warmup_steps': 500,
    'pp': {'train': 'train[:98%]', 'test': 'test', 'crop': 384},
  },
  'imagenet2012': {
    'total_steps': 20_000,
    'warmup_steps': 500,
    'pp': {'train': 'train[:99%]', 'test': 'validation', 'crop': 384},
  },
  'oxford_flowers102': {
    'total_steps': 500,
    'warmup_steps': 100,
    'pp': {'train': 'train', 'test': 'test', 'crop': 384},
  },
  'oxford_iiit_pet': {
    'total_steps': 500,
    'warmup_steps': 100,
    'pp': {'train': 'train', 'test': 'test', 'crop': 384},
  },
}


def with_dataset(
  config: ml_collections.ConfigDict, dataset: str
) -> ml_collections.ConfigDict:
  """Returns a copy for a data set, with its preset where there is one."""
  config = ml_collections.ConfigDict(config)
  config.dataset = dataset
  config.update(DATASET_PRESETS.get(dataset, {}))
  return config.lock()


def with_model(
  config: ml_collections.ConfigDict, model: str
) -> ml_collections.ConfigDict:
  """Returns a copy that fine-tunes given weights.

  Args:
    config: settings.
    model: a released model, `b16` or `ViT-B_16`; a name that
      `vit-jax models` prints; or a file or folder of weights,
      which will tell what they are of.

  Raises:
    ValueError: if it is none of them.
  """
  config = ml_collections.ConfigDict(config)
  entry = registry.entries().get(model)
  try:
    config.model = models.get_model_config(entry.model if entry else model)
    config.pretrained = model if entry else config.model.model_name
  except ValueError:
    if not os.path.exists(model):
      raise
    config.pretrained = model
  if entry and entry.is_augreg:
    config.model.transformer.dropout_rate = models.AUGREG_DROPOUT
  return config.lock()


def with_sweep(
  config: ml_collections.ConfigDict,
  base_lr: Sequence[float],
  *,
  train: str = '',
  holdout: str = '',
  seeds: Sequence[int] = (0,),
) -> ml_collections.ConfigDict:
  """Returns a copy for `vit-jax sweep`.

  Args:
    config: settings of the final runs, on all of `pp.train`.
    base_lr: rates to try.
    train: split that the trials train on. Empty: see `held_out`.
    holdout: split on which the best rate is chosen. Empty: likewise.
    seeds: seeds of the final runs.
  """
  config = ml_collections.ConfigDict(config).unlock()
  config.trainer = 'sweep'
  config.sweep = ml_collections.ConfigDict(
    {
      'base_lr': tuple(base_lr),
      'train': train,
      'holdout': holdout,
      'seeds': tuple(seeds),
    }
  )
  return config.lock()


_PERCENT = re.compile(r'(\w+)(?:\[(?:(\d+)%)?:(?:(\d+)%)?\])?')


def held_out(config: ml_collections.ConfigDict) -> tuple[str, str]:
  """Returns the splits that a sweep trains trials on and compares them on.

  Those of `config.sweep`; if both are empty, all but the last tenth of
  `config.pp.train`, and that tenth.

  Raises:
    errors.UserError: if one of them is empty, or `config.pp.train` is not one
      range in percent.
  """
  train, holdout = config.sweep.train, config.sweep.holdout
  if train and holdout:
    return train, holdout
  part = _PERCENT.fullmatch(config.pp.train)
  start, end = (int(part[2] or 0), int(part[3] or 100)) if part else (0, 0)
  middle = end - max(1, round((end - start) / 10))
  if train or holdout or not start < middle < end <= 100:
    raise errors.UserError(
      f'config.sweep.train is {train!r} and holdout {holdout!r}, and'
      f' config.pp.train, {config.pp.train!r}, is not divided by itself: give'
      f" both, --train='train[:90%]' --holdout='train[90%:]'."
    )
  tail = f'{end}%' if end < 100 else ''
  head = f'{start}%' if start else ''
  return f'{part[1]}[{head}:{middle}%]', f'{part[1]}[{middle}%:{tail}]'
