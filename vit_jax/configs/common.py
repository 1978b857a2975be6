"""Every setting, its default, and the values it may have; see also `images`."""

import re
import types

import ml_collections
from ml_collections.config_dict import placeholder

from vit_jax.configs import images
from vit_jax.configs import labels
from vit_jax.configs import losses
from vit_jax.configs import optimization
from vit_jax.configs import presets
from vit_jax.configs import rules

# A name of `config.evaluators`.
EVALUATOR = re.compile(r'([1-9]\d*)shot|knn|linear')

# File name endings of tables.
NPZ = '.npz'
TABLES = ('.csv', '.tsv', '.jsonl', '.parquet', NPZ)

# File name ending of shards.
SHARDS = '.tar'

# Values of `config.remat`; each needs less memory and more computation than the last.
REMAT = ('', 'dots_saveable', 'dots_with_no_batch_dims_saveable', 'full')

_LOGGERS = ('tensorboard', 'wandb', 'mlflow')


def get_config() -> ml_collections.ConfigDict:
  """Returns every setting but the model's, locked."""
  return rules.new_config(_declare()).lock()


def _declare() -> types.SimpleNamespace:
  config = types.SimpleNamespace()
  # 'train'; 'contrastive' trains on images and texts; 'evaluate' evaluates the
  # newest checkpoint of the workdir; 'sweep' is for `vit-jax sweep`.
  config.trainer = rules.one_of('train', 'contrastive', 'evaluate', 'sweep')
  # Seeds initialisation, data order, augmentation and dropout.
  config.seed = rules.number(0, low=0, high=2**32 - 1)
  _add_model(config)
  _add_data(config)
  optimization.declare_schedule(config)
  optimization.declare_optimizer(config)
  losses.declare(config)
  _add_contrastive(config)
  _add_events(config)
  # Devices along each axis; -1 takes the rest. `data` splits the batch, `fsdp`
  # the batch and the parameters, `model` heads and MLP.
  config.mesh = types.SimpleNamespace(
    data=rules.number(-1, low=-1),
    fsdp=rules.number(1, low=-1),
    model=rules.number(1, low=-1),
  )
  return config


def _add_model(config: types.SimpleNamespace) -> None:
  # The model to train, see `vit_jax.configs.models`. None: the model of the
  # pretrained weights.
  config.model = None
  # Weights to start from: an .npz, a .safetensors or a folder with one, the
  # artifact or workdir of another run, a URL, hf://ORGANISATION/NAME, or a name that
  # `vit-jax models` prints. Empty: train from scratch. None: config.model.model_name if
  # `pretrained_dir` is set, as in the official code, else empty.
  config.pretrained = placeholder(str)
  # Where names are looked up, as `<pretrained_dir>/<name>.npz`: a folder, or a
  # bucket such as gs://vit_models/imagenet21k. None: checkpoints.
  config.pretrained_dir = placeholder(str)
  # How the first kernel fits images with another number of channels: 'sum' or
  # 'repeat' it; '' refuses such images.
  config.adapt_channels = rules.one_of('', 'sum', 'repeat')
  # Whether to resize the first kernel to config.model.patches.size.
  config.adapt_patches = False
  # Precision of the computation; in LiT models, of the image tower. Parameters
  # are always float32.
  config.dtype = rules.one_of('float32', 'bfloat16')
  # How CPUs multiply if dtype is 'bfloat16': 'xla', 'onednn' (jax 0.12; products
  # return bfloat16), or 'auto', the faster one, which is measured once for a machine
  # and kept when a run resumes.
  config.cpu_products = rules.one_of('auto', 'xla', 'onednn')
  # Implementation of attention: 'xla', 'cudnn' (GPUs, bfloat16), or 'auto', the
  # faster one, which is measured when a run begins and kept when it resumes.
  config.attention = rules.one_of('auto', 'xla', 'cudnn')
  # Activations that the backward pass recomputes, to save memory at the cost of
  # time: '' none, 'full' all of a block; 'dots_saveable' keeps all matrix
  # products, 'dots_with_no_batch_dims_saveable' those with weights.
  config.remat = rules.one_of(*REMAT)
  # Whether to compile one program for all blocks, with stacked parameters. Deep
  # models compile faster. Combine it with `remat`.
  config.scan_layers = False
  # Probability of dropping a residual branch of the last block.
  config.stochastic_depth_rate = rules.number(0.0, low=0.0, high=0.999)
  # Share of the patches of each training image that a ViT leaves out, to save time
  # (arXiv:2208.07220).
  config.patch_dropout = rules.number(0.0, low=0.0, high=0.99)
  # Epsilon of LayerNorm, and whether GELU is exact. None: the values of the
  # pretrained weights; without weights, 1e-6 and the tanh approximation, as in
  # the official models. PyTorch's models differ.
  config.layer_norm_epsilon = rules.number(None, low=0.0, kind=float)
  config.exact_gelu = rules.one_of(True, False, kind=bool)
  # Position embeddings: 'learn', or 'sincos2d', which are fixed
  # (arXiv:2205.01580). Pretrained weights must then have fixed ones too.
  config.posemb = rules.one_of('learn', 'sincos2d')
  # Initial value of the biases of the head; -log(classes) suits sigmoid losses.
  config.head_bias_init = rules.number(0.0)


def _add_data(config: types.SimpleNamespace) -> None:
  # A folder with <class>/<image> or {train,test}/<class>/<image>, a table of paths
  # and labels (.csv, .tsv, .jsonl, .parquet), arrays (.npz), a folder or address of
  # Hugging Face's `datasets` such as 'hf://datasets/USER/NAME', shards of WebDataset
  # such as 'data/train-{000..099}.tar', 'digits', 'cifar10', 'cifar100', or the name of
  # any TFDS data set prepared as array_record. Contrastive training: a folder with
  # {train,test}/captions.tsv or captions.jsonl.
  config.dataset = ''
  # What images are labelled with: 'multiclass', one class each; 'multilabel', any
  # number of classes; 'regression', numbers. Empty: inferred from the columns of a table,
  # else 'multiclass'.
  config.task = rules.one_of('', *labels.TASKS)
  # Columns of a table: the path of each image or the bytes of its file; its class
  # (`label`), its classes (`labels`: a list, or text with `separator` between them;
  # or several columns of 0 and 1, such as 'cat,dog') or its numbers (`target`, or
  # several columns, such as 'width,height', with `units` such as 'mm,mm'); its split,
  # and its weight in the training loss, which may both be missing; an empty `weight`
  # reads none. `classes` is a file with the classes, one a line; empty: those of the
  # training images.
  config.columns = types.SimpleNamespace(
    image='image',
    label='label',
    labels='labels',
    target='target',
    split='split',
    weight='weight',
    classes='',
    separator='|',
    units='',
  )
  # Folder of TFDS data sets and of CIFAR. None: ~/tensorflow_datasets.
  config.tfds_data_dir = placeholder(str)
  # How images are read, cropped and augmented.
  config.pp = images.declare()
  # What to do with a file that cannot be decoded: 'raise', or 'skip' and count it.
  config.on_bad_image = rules.one_of('raise', 'skip')
  # Decoding threads, and additional worker processes, which pay from 8 cores on.
  config.num_threads = rules.number(4, low=1, high=1024)
  config.num_workers = rules.number(0, low=0, high=1024)
  # Batches that the loader makes ahead. Fewer than `num_threads` leave threads
  # idle.
  config.prefetch = rules.number(4, low=1, high=1024)


def _add_contrastive(config: types.SimpleNamespace) -> None:
  # Whether the image tower keeps its pretrained weights, without dropout
  # (LiT, arXiv:2111.07991). If not, both towers are trained.
  config.lock_image_tower = True
  # File of the tokeniser: a BERT vocabulary, a SentencePiece model, or the byte pairs
  # of CLIP. Empty: the file beside the pretrained weights, or of the released model,
  # `<pretrained_dir>/<name>.txt` or `.model`.
  config.vocabulary = ''
  # Initial values of the temperature, which multiplies the products of
  # embeddings, and of the bias of the sigmoid loss (arXiv:2303.15343, Sec. 3.2).
  # Weights of both towers have their own, which stay.
  config.temperature_init = rules.number(10.0, low=1e-3, high=1e3)
  config.bias_init = rules.number(-10.0, low=-1e3, high=1e3)


def _add_events(config: types.SimpleNamespace) -> None:
  # Steps between two lines of metrics; 0: never.
  config.progress_every = rules.number(10, low=0)
  # Steps between two evaluations, which also happen at the last step; 0: never.
  config.eval_every = rules.number(100, low=0)
  # Classifiers that each evaluation fits to the features before the head.
  config.evaluators = rules.such(
    (),
    lambda names: all(map(EVALUATOR.fullmatch, names)),
    "a tuple of 'knn', 'linear', '10shot' or another number of shots",
  )
  # Steps between two checkpoints. 0: none but those that are always saved: at the last
  # step, after the best evaluation so far, and when the run is stopped.
  config.checkpoint_every = rules.number(1_000, low=0)
  # (first, last): writes a trace of these steps to workdir/profile. (): none.
  config.profile_steps = rules.such(
    (),
    lambda steps: (
      not steps
      or (
        all(isinstance(step, int) for step in steps)
        and len(steps) == 2
        and 1 <= steps[0] <= steps[1]
      )
    ),
    '(first, last), two steps from 1 on, or () for no trace',
  )
  # The metric that chooses the best checkpoint, and the best rate of a sweep. Lower is
  # better for losses and errors. 'balanced_accuracy_test' and 'f1_test' are means over
  # classes, so rare classes count fully; 'kappa_test' (quadratic) also weighs how far
  # off a class is. None: 'accuracy_test', for several classes 'map_test', for numbers
  # 'mae_test'.
  config.best_metric = rules.one_of(*labels.every(labels.METRICS), kind=str)
  # Number of newest checkpoints to keep, in addition to the best one.
  config.keep_checkpoints = rules.number(2, low=1)
  # Where metrics go in addition to workdir/metrics.jsonl. 'wandb' and 'mlflow' need
  # the extras of these names, such as vit_jax[wandb].
  config.loggers = rules.such(
    ('tensorboard',),
    lambda names: set(names) <= set(_LOGGERS),
    f'some of {_LOGGERS}',
  )
  # Whether the command leaves a page about the run, workdir/report.html, with
  # predictions unless `eval_every` is 0.
  config.report = True


# The rule of each setting, by names such as 'batch' and 'pp.crop'. Some are only
# checked together, in `validate`.
RULES = dict(rules.by_name(_declare()))

# Run files call these with a config from `get_config`.
DATASET_PRESETS = presets.DATASET_PRESETS
with_dataset = presets.with_dataset
with_model = presets.with_model
with_sweep = presets.with_sweep
