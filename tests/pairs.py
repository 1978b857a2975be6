"""Settings that a run combines: every pair of two values, in few runs.

`ROWS` has every pair of values of two settings in some row.
"""

from collections.abc import Mapping
import functools
import pathlib
from typing import Any

from allpairspy import AllPairs
import cv2
import jax
import ml_collections
import numpy as np

from vit_jax import models as modules
from vit_jax.configs import common
from vit_jax.configs import models
from vit_jax.data import preprocessing
from vit_jax.data import sources
from vit_jax.weights import artifact
from vit_jax.weights import record

Row = dict[str, str]
Config = ml_collections.ConfigDict

SIZE, BATCH, STEPS = 16, 16, 3
COUNTS = {'train': (12, 7, 5), 'test': (4, 4, 4)}  # Images of each class.


def _names(*names: str) -> dict[str, dict[str, Any]]:
  """Returns values that `make_config` treats one by one."""
  return {name: {} for name in names}


# By setting and the name of a value: what it changes in the config.
SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
  'family': _names('token', 'gap', 'token_gap', 'hybrid', 'mixer'),
  'mesh': {
    'one': {},
    'data': {'mesh.data': 8},
    'all axes': {'mesh.data': 2, 'mesh.fsdp': 2, 'mesh.model': 2},
  },
  'optimizer': {
    'sgd': {'optimizer': 'sgd'},
    'adamw': {'optimizer': 'adamw', 'weight_decay': 0.1},
    'lamb': {'optimizer': 'lamb', 'optim_dtype': 'float32'},
    'adafactor': {'optimizer': 'adafactor', 'weight_decay': 0.01},
    'muon': {'optimizer': 'muon', 'weight_decay': 0.1},
    'sam': {'sam_rho': 0.05},
  },
  'layers': {
    'unrolled': {},
    'scan': {'scan_layers': True},
    'scan, remat': {'scan_layers': True, 'remat': 'full'},
    'remat': {'remat': 'dots_saveable'},
  },
  'rates': {
    'equal': {},
    'by layer': {'layer_decay': 0.7},
    'linear': {'decay_type': 'linear', 'cooldown_steps': 1},
  },
  'stages': {
    'none': {},
    'frozen': {'freeze': ('embedding|stem',)},
    'two': {
      'stages': (
        {'total_steps': 1, 'warmup_steps': 0, 'freeze': (r'(?!head/)',)},
        {'total_steps': 2, 'warmup_steps': 1},
      ),
    },
  },
  'average': {'none': {}, 'ema': {'ema_decay': 0.9}},
  'dtype': {'float32': {}, 'bfloat16': {'dtype': 'bfloat16'}},
  'accumulation': {'one part': {}, 'two parts': {'accum_steps': 2}},
  'data': _names('files', 'grey files', 'arrays', 'bad files'),
  'subset': {
    'all': {},
    'shots': {'pp.shots': 4},
    'balanced': {'pp.balance_classes': True},
  },
  'duration': _names('steps', 'epochs'),
  'crops': {
    'area': {'pp.crop_area': (0.3, 1.0)},
    'resize': {'pp.resize': SIZE + 4, 'pp.resize_test': SIZE + 2},
    'pad': {'pp.pad': 2, 'pp.pad_mode': 'reflect', 'pp.resize_test': (20, 24)},
  },
  'augmentation': {
    'none': {'pp.flip': False},
    'preset': {'pp.augmentation': 'light2'},
    'colours': {'pp.color_jitter': (0.4, 0.4, 0.4, 0.1)},
    'erasing': {'pp.random_erasing': 0.5, 'pp.randaugment': (2, 5)},
  },
  'trained': {
    'all': {},
    'lora': {'lora_rank': 2, 'lora_targets': ('query', 'out', 'mlp')},
  },
  'holdout': _names('none', 'some'),
  'mixing': {'none': {}, 'mixed': {'pp.cutmix': 1.0}},
  'start': _names('random', 'sincos2d', 'pretrained'),
  'loss': {
    'softmax': {'label_smoothing': 0.1},
    'sigmoid': {'loss': 'sigmoid', 'head_bias_init': -1.0},
  },
  'probes': {'none': {}, 'knn': {'evaluators': ('knn',)}},
}


ROWS = [
  dict(zip(SETTINGS, values, strict=True))
  for values in AllPairs(list(map(list, SETTINGS.values())))
]


def name(row: Row) -> str:
  """Returns the values of a row that are not the first ones of their setting."""
  return '-'.join(v for k, v in row.items() if v != next(iter(SETTINGS[k])))


def make_folder(root: pathlib.Path, *, bad: bool = False) -> pathlib.Path:
  """Writes images of three classes in `COUNTS`; with `bad`, a cut one a split."""
  rng = np.random.RandomState(0)
  for split, counts in COUNTS.items():
    for label, count in enumerate(counts):
      folder = root / split / f'class {label}'
      folder.mkdir(parents=True)
      for i in range(count):
        image = rng.randint(0, 80, (*rng.randint(20, 40, 2), 3), np.uint8)
        image[..., label] += 120
        cv2.imwrite(str(folder / f'{i}.png'), image)
    if bad:
      path = root / split / 'class 0' / '0.png'
      path.write_bytes(path.read_bytes()[:50])
  return root


def _model(family: str) -> Config:
  if family == 'mixer':
    sizes = {'hidden_dim': 8, 'num_blocks': 2}
    mlps = {'tokens_mlp_dim': 8, 'channels_mlp_dim': 16}
    patches = {'patches': {'size': (8, 8)}}
    return Config({'model_name': 'tiny', **patches, **sizes, **mlps})
  config = models.vit_config(
    'tiny',
    hidden_size=16,
    num_layers=2,
    mlp_dim=32,
    num_heads=2,
    patch_size=(2, 2) if family == 'hybrid' else (8, 8),
    dropout_rate=0.1,
    classifier='token' if family == 'hybrid' else family,
  )
  if family == 'hybrid':
    config.resnet = {'num_layers': (), 'width_factor': 1}
  if family == 'token':
    config.representation_size = 12
  return config


def _set(config: Config, changes: Mapping[str, Any]) -> None:
  for path, value in changes.items():
    *parents, last = path.split('.')
    functools.reduce(getattr, parents, config)[last] = value


def make_config(row: Row, folder: pathlib.Path) -> Config:
  """Returns the config of a row, whose data is below `folder`."""
  config = Config(common.get_config()).unlock()
  config.model = _model(row['family'])
  config.update(
    dataset=str(folder / ('bad' if row['data'] == 'bad files' else 'good')),
    report=False,
    batch=BATCH,
    batch_eval=8,
    accum_steps=1,
    total_steps=STEPS,
    warmup_steps=1,
    base_lr=0.01,
    progress_every=1,
    eval_every=STEPS,
    checkpoint_every=1,
    keep_checkpoints=3,
    stochastic_depth_rate=0.1,
    loggers=(),
  )
  config.pp.crop = SIZE
  for setting, value in row.items():
    _set(config, SETTINGS[setting][value])
  if row['data'] == 'arrays':
    config.dataset = 'digits'
    config.pp.update(train='train[:120]', test='test[:12]')
  elif row['data'] == 'grey files':
    config.pp.channels = 1
  elif row['data'] == 'bad files':
    config.on_bad_image = 'skip'
  # Two test images, the others are tested. With 'sigmoid' they would decide nothing.
  if row['holdout'] == 'some' and row['loss'] == 'softmax':
    config.pp.test, config.pp.holdout = 'test[:80%]', 'test[80%:]'
    if row['data'] == 'arrays':
      config.pp.update(test='test[:10]', holdout='test[10:12]')
  if row['start'] == 'sincos2d' and row['family'] != 'mixer':
    config.posemb = 'sincos2d'
  elif row['start'] == 'pretrained':
    config.pretrained = str(_pretrained(config, folder))
  if row['duration'] == 'epochs' and not config.stages:
    config.total_steps, config.warmup_steps = None, 0
    config.total_epochs = STEPS * BATCH / _num_examples(config)
  return config.lock()


def _num_examples(config: Config) -> int:
  """Returns how many images an epoch has, counted from the labels."""
  labels = sources.get_source(config.dataset, config.pp.train).labels()
  counts = np.bincount(labels)
  if config.pp.shots:
    return config.pp.shots * len(counts)
  return len(counts) * max(counts) if config.pp.balance_classes else len(labels)


def _pretrained(config: Config, folder: pathlib.Path) -> pathlib.Path:
  """Returns weights of another task, whose inputs have their own mean."""
  family = config.model.get('classifier', 'mixer')
  channels = 1 if config.pp.channels == 1 or config.dataset == 'digits' else 3
  stem = 'hybrid' if config.model.get('resnet') else family
  path = folder / f'{stem}-{channels}'
  if not path.exists():
    model = config.model.to_dict() | {'representation_size': None}
    if stem == 'mixer':
      del model['representation_size']
    # Position embeddings of a ViT are resized.
    shape = (*(2 * [SIZE if stem == 'mixer' else 2 * SIZE]), channels)
    module = modules.from_config(model, num_classes=5)
    found = record.Weights(
      params=jax.device_get(modules.init_params(module, shape, 1)),
      model=model,
      class_names=[f'old {i}' for i in range(5)],
      preprocessing=preprocessing.Preprocessing(
        shape[:2], channels, mean=(0.4,), std=(0.3,)
      ),
    )
    artifact.save(path, found)
  config.model.representation_size = None
  if stem == 'mixer':
    del config.model['representation_size']
  return path
