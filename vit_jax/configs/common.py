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
  # 'train'; 'contrastive' trains on images and texts; 'evaluate' evaluates the
  # newest checkpoint of the workdir; 'sweep' is for `vit-jax sweep`.
  config.trainer = 'train'
  # Seeds initialisation, data order, augmentation and dropout.
  config.seed = 0
  _add_model(config)
  _add_data(config)
  _add_training(config)
  _add_contrastive(config)
  _add_events(config)
  # Devices along each axis; -1 takes the rest. `data` splits the batch, `fsdp`
  # the batch and the parameters, `model` heads and MLP.
  config.mesh = ml_collections.ConfigDict({'data': -1, 'fsdp': 1, 'model': 1})
  return config.lock()


def _add_model(config: ml_collections.ConfigDict) -> None:
  # The model to train, see `vit_jax.configs.models`. None: the model of the
  # pretrained weights.
  config.model = None
  # Weights to start from: an .npz, a .safetensors or a folder with one, the
  # artifact or workdir of another run, a URL, or a name that `vit-jax models`
  # prints. Empty: train from scratch. None: config.model.model_name if
  # `pretrained_dir` is set, as in the official code, else empty.
  config.pretrained = placeholder(str)
  # Where names are looked up, as `<pretrained_dir>/<name>.npz`: a folder, or a
  # bucket such as gs://vit_models/imagenet21k. None: checkpoints.
  config.pretrained_dir = placeholder(str)
  # How the first kernel fits images with another number of channels: 'sum' or
  # 'repeat' it; '' refuses such images.
  config.adapt_channels = ''
  # Whether to resize the first kernel to config.model.patches.size.
  config.adapt_patches = False
  # Precision of the computation, 'float32' or 'bfloat16'; in LiT models, of the
  # image tower. Parameters are always float32.
  config.dtype = 'float32'
  # Implementation of attention: 'xla', 'cudnn' (GPUs, bfloat16), or 'auto', the
  # faster one, which is measured when a run begins and kept when it resumes.
  config.attention = 'auto'
  # Activations that the backward pass recomputes, to save memory at the cost of
  # time: '' none, 'full' all of a block; 'dots_saveable' keeps all matrix
  # products, 'dots_with_no_batch_dims_saveable' those with weights.
  config.remat = ''
  # Whether to compile one program for all blocks, with stacked parameters. Deep
  # models compile faster. Combine it with `remat`.
  config.scan_layers = False
  # Probability of dropping a residual branch of the last block.
  config.stochastic_depth_rate = 0.0
  # Epsilon of LayerNorm, and whether GELU is exact. None: the values of the
  # pretrained weights; without weights, 1e-6 and the tanh approximation, as in
  # the official models. PyTorch's models differ.
  config.layer_norm_epsilon = placeholder(float)
  config.exact_gelu = placeholder(bool)
  # Position embeddings: 'learn', or 'sincos2d', which are fixed
  # (arXiv:2205.01580). Pretrained weights must then have fixed ones too.
  config.posemb = 'learn'
  # Initial value of the biases of the head; -log(classes) suits sigmoid losses.
  config.head_bias_init = 0.0


def _add_data(config: ml_collections.ConfigDict) -> None:
  # A folder with {train,test}/<class>/<image>, 'digits', 'cifar10',
  # 'cifar100', or the name of any TFDS data set prepared as array_record.
  # Contrastive training: a folder with {train,test}/captions.tsv.
  config.dataset = ''
  # Folder of TFDS data sets and of CIFAR. None: ~/tensorflow_datasets.
  config.tfds_data_dir = placeholder(str)
  # How images are read, cropped and augmented.
  config.pp = images.get_config()
  # What happens at a file that cannot be decoded: 'raise', or 'skip' and count.
  config.on_bad_image = 'raise'
  # Decoding threads, and additional worker processes, which pay from 8 cores on.
  config.num_threads = 4
  config.num_workers = 0
  # Batches that the loader keeps in memory, being made or ready. Fewer than
  # `num_threads` leave threads idle.
  config.prefetch = 4


def _add_training(config: ml_collections.ConfigDict) -> None:
  # Images per step, over all hosts and devices.
  config.batch = 512
  # Parts of a batch whose gradients are computed one after the other, to save
  # memory.
  config.accum_steps = 8
  # Images per step of an evaluation, over all hosts and devices.
  config.batch_eval = 512
  # Steps of the run.
  config.total_steps = placeholder(int)
  # Durations in epochs override durations in steps, except steps set on the
  # command line. An epoch is the images that are trained on.
  for name in durations.EPOCHS.values():
    config[name] = placeholder(float)
  # Peak learning rate, reached after the warm-up. A run that is too short for its
  # warm-up and cool-down trains with a lower one, and a warning.
  config.base_lr = 0.03
  # Steps over which the learning rate rises linearly from 0.
  config.warmup_steps = 500
  # Learning rate after the warm-up: 'cosine' to 0, 'linear' to 1e-5, 'rsqrt'
  # (reciprocal square root) or 'constant'.
  config.decay_type = 'cosine'
  # Steps after the warm-up at which 'rsqrt' is at 0.71 of its peak.
  config.timescale = 10_000
  # Final steps over which the learning rate is also reduced linearly to 0.
  config.cooldown_steps = 0
  # Largest global norm of the gradient; 0 for no limit.
  config.grad_norm_clip = 1.0
  # The optimizer: 'sgd', 'adamw', 'lamb' or 'adafactor'.
  config.optimizer = 'sgd'
  # Momentum of SGD and Adafactor; beta1 of AdamW and LAMB.
  config.momentum = 0.9
  # beta2 of AdamW and LAMB; upper limit of Adafactor's (arXiv:2106.04560).
  config.beta2 = 0.999
  # Precision of the momentum: 'bfloat16' or 'float32'.
  config.optim_dtype = 'bfloat16'
  # Weight decay: an L2 term of the gradient in SGD, decoupled in the others.
  config.weight_decay = 0.0
  # Which parameters decay: 'kernels' (no biases, norms, class token, position
  # embeddings) or 'all'.
  config.weight_decay_on = 'kernels'
  # Learning rate of a block relative to the next one. 1: the same for all.
  # arXiv:2106.08254 fine-tunes with 0.65 to 0.75. Not available for LiT.
  config.layer_decay = 1.0
  # Radius of Sharpness-Aware Minimisation, which computes two gradients per step.
  # 0: off.
  config.sam_rho = 0.0
  # Decay of a moving average of the parameters, which is evaluated and saved too.
  # 0: off.
  config.ema_decay = 0.0
  # Regular expressions: a parameter is frozen if one of them matches the start of
  # its name. r'(?!head/)' trains the head alone.
  config.freeze = ()
  # Stages of a run, one after the other. Each is a dict of settings, with
  # `total_steps` or `total_epochs`; what it does not set is as in the config.
  config.stages = ()
  # 'softmax' or 'sigmoid' cross-entropy, over classes or image-text pairs.
  config.loss = 'softmax'
  # Share of each target that is spread over all classes.
  config.label_smoothing = 0.0


def _add_contrastive(config: ml_collections.ConfigDict) -> None:
  # File of the tokeniser, a BERT vocabulary or a SentencePiece model. Empty: the
  # file of the released model, `<pretrained_dir>/<name>.txt` or `.model`.
  config.vocabulary = ''
  # Initial values of the temperature, which multiplies the products of
  # embeddings, and of the bias of the sigmoid loss (arXiv:2303.15343, Sec. 3.2).
  config.temperature_init = 10.0
  config.bias_init = -10.0


def _add_events(config: ml_collections.ConfigDict) -> None:
  # Steps between two lines of metrics; 0: never.
  config.progress_every = 10
  # Steps between two evaluations, which also happen at the last step; 0: never.
  config.eval_every = 100
  # Classifiers that each evaluation fits to the features before the head:
  # '10shot' (any number of shots), 'knn', 'linear'.
  config.evaluators = ()
  # Steps between two checkpoints, which are also saved at the last step; 0: never.
  config.checkpoint_every = 1_000
  # (first, last): writes a trace of these steps to workdir/profile. (): none.
  config.profile_steps = ()
  # Number of newest checkpoints that are kept, besides the best one.
  config.keep_checkpoints = 2
  # Where metrics go besides workdir/metrics.jsonl: 'tensorboard', 'wandb',
  # 'mlflow'. The last two are extras of these names.
  config.loggers = ('tensorboard',)
  # Whether the command leaves a page about the run, workdir/report.html, with
  # predictions unless `eval_every` is 0.
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
