"""Run files have the settings that papers and the official code publish.

Each row cites its source. Papers:
ViT arXiv:2010.11929, AugReg arXiv:2106.10270, plain ViT arXiv:2205.01580, Mixer
arXiv:2105.01601, LiT arXiv:2111.07991. Code: google-research/vision_transformer at
c6de1e5, google-research/big_vision.
"""

from golden_files import REPOSITORY
import pytest
from runs import run_file

from vit_jax.configs import common
from vit_jax.configs import labels
from vit_jax.configs import models
from vit_jax.configs import registry

VIT, AUGREG, PLAIN = '2010.11929', '2106.10270', '2205.01580'
MIXER, LIT = '2105.01601', '2111.07991'

# ViT, Sec. B.1.1 and Table 4; the official configs/common.py.
FINETUNE = {
  'accum_steps': 8,
  'base_lr': 0.03,
  'batch': 512,
  'decay_type': 'cosine',
  'grad_norm_clip': 1.0,
  'momentum': 0.9,
  'optimizer': 'sgd',
  'pp.crop': 384,
  'pp.resize': None,
  'weight_decay': 0.0,
}
CIFAR = FINETUNE | {
  'total_steps': 10_000,
  'warmup_steps': 500,
  'pp.train': 'train[:98%]',
  'pp.test': 'test',
}
IMAGENET = FINETUNE | {
  'total_steps': 20_000,
  'warmup_steps': 500,
  'pp.train': 'train[:99%]',
  'pp.test': 'validation',
}
SMALL = FINETUNE | {'total_steps': 500, 'warmup_steps': 100}


def swept(part, rates=(0.001, 0.003, 0.01, 0.03)):
  """Returns the settings of a sweep that holds out images from `part` on."""
  return {
    'pp.train': 'train',
    'sweep.base_lr': rates,
    'sweep.train': f'train[:{part}]',
    'sweep.holdout': f'train[{part}:]',
  }


# ViT, Sec. B.1, Table 3: all models, then ImageNet, then ImageNet-21k.
PRETRAIN = {
  'batch': 4096,
  'beta2': 0.999,
  'model.transformer.dropout_rate': 0.1,
  'momentum': 0.9,
  'optimizer': 'adamw',
  'pp.crop': 224,
  'warmup_steps': 10_000,
}
PRETRAIN_1K = PRETRAIN | {
  'base_lr': 0.003,
  'decay_type': 'cosine',
  'grad_norm_clip': 1.0,
  'total_epochs': 300.0,
  'weight_decay': 0.3,
}
PRETRAIN_21K = PRETRAIN | {
  'base_lr': 0.001,
  'decay_type': 'linear',
  'grad_norm_clip': 0.0,
  'total_epochs': 90.0,
  'weight_decay': 0.03,
}

# AugReg, Sec. 3 and Fig. 4; big_vision's vit_i1k.py, whose weight decay is that of
# a step: 1e-4, here multiplied by the learning rate.
PRETRAIN_AUGREG = {
  'base_lr': 0.001,
  'batch': 4096,
  'decay_type': 'cosine',
  'grad_norm_clip': 1.0,
  'loss': 'softmax',
  'model.representation_size': None,
  'model.transformer.dropout_rate': 0.0,
  'optimizer': 'adamw',
  'pp.crop': 224,
  'pp.resize_test': 256,
  'total_epochs': 300.0,
  'warmup_steps': 10_000,
  'weight_decay': 0.1,
}

# By run file and argument: papers that its docstring cites, and settings.
PUBLISHED = {
  'vit:b16,cifar10': (VIT, CIFAR | {'base_lr': 0.01}),
  'vit:l16,cifar100': (VIT, CIFAR | {'model.transformer.dropout_rate': 0.1}),
  'vit:h14,imagenet2012': (VIT, IMAGENET),
  'vit:r50_b16,oxford_iiit_pet': (VIT, SMALL),
  'vit:b32,oxford_flowers102': (VIT, SMALL),
  'b16_cifar10': (VIT, CIFAR | {'base_lr': 0.01}),
  'b16_cifar100': (VIT, CIFAR),
  'b16_imagenet': (VIT, IMAGENET),
  'b32_cifar10': (VIT, CIFAR),
  'b32_cifar100': (VIT, CIFAR),
  'b32_imagenet': (VIT, IMAGENET),
  'l16_cifar10': (VIT, CIFAR),
  'l16_cifar100': (VIT, CIFAR),
  'l16_imagenet': (VIT, IMAGENET),
  'h14_cifar10': (VIT, CIFAR),
  'h14_cifar100': (VIT, CIFAR),
  'h14_imagenet': (VIT, IMAGENET),
  'sweep:b16,cifar10': (VIT, CIFAR | swept('98%')),
  'sweep:b16,cifar100': (VIT, CIFAR | swept('98%')),
  'sweep:l16,imagenet2012': (
    VIT,
    IMAGENET | swept('99%', (0.003, 0.01, 0.03, 0.06)),
  ),
  'sweep:b16,oxford_iiit_pet': (VIT, SMALL | swept('90%')),
  # Sec. 3.2: in pre-training the head has a hidden layer.
  'pretrain:b16,imagenet2012': (
    VIT,
    PRETRAIN_1K | {'model.representation_size': 768},
  ),
  'pretrain:l16,/imagenet21k': (
    VIT,
    PRETRAIN_21K | {'model.representation_size': 1024},
  ),
  'pretrain:r50_b16,/imagenet21k': (
    VIT,
    PRETRAIN_21K | {'model.representation_size': 768},
  ),
  'pretrain_augreg:ti16,imagenet2012': (
    AUGREG,
    PRETRAIN_AUGREG | {'pp.augmentation': 'light1'},
  ),
  'pretrain_augreg:s32,imagenet2012': (
    AUGREG,
    PRETRAIN_AUGREG | {'pp.augmentation': 'light2'},
  ),
  'pretrain_augreg:s16,imagenet2012': (
    AUGREG,
    PRETRAIN_AUGREG | {'pp.augmentation': 'medium2'},
  ),
  'pretrain_augreg:l16,imagenet2012': (
    AUGREG,
    PRETRAIN_AUGREG | {'pp.augmentation': 'medium2'},
  ),
  # The official augreg.py.
  'augreg:L_16': (
    AUGREG,
    SMALL
    | {
      'model.transformer.dropout_rate': 0.0,
      'pp.resize': 448,
      'pp.train': 'train',
      'pp.test': 'test',
      'pretrained': 'L_16',
      'pretrained_dir': 'gs://vit_models/augreg',
    },
  ),
  # big_vision's vit_s16_i1k.py.
  's16_imagenet_scratch': (
    PLAIN,
    {
      'base_lr': 0.001,
      'batch': 1024,
      'decay_type': 'cosine',
      'grad_norm_clip': 1.0,
      'label_smoothing': 0.0,
      'loss': 'softmax',
      'model.classifier': 'gap',
      'model.representation_size': 384,
      'model.transformer.dropout_rate': 0.0,
      'optimizer': 'adamw',
      'posemb': 'sincos2d',
      'pp.augmentation': 'light2',
      'pp.crop': 224,
      'pp.resize_test': 256,
      'pp.train': 'train[:99%]',
      'pp.test': 'validation',
      'total_epochs': 90.0,
      'warmup_steps': 10_000,
      'weight_decay': 0.1,
    },
  ),
  # Sec. 3; the official mixer_base16_cifar10.py.
  'mixer_base16_cifar10': (
    MIXER,
    CIFAR | {'model': models.get_mixer_b16_config(), 'pp.crop': 224},
  ),
  # Its decay is that of a step, 1e-4, here multiplied by the learning rate.
  'lit_folder:lit_l16ti,/data': (
    LIT,
    {
      'base_lr': 0.001,
      'decay_type': 'cosine',
      'grad_norm_clip': 1.0,
      'weight_decay': 0.1,
      'pp.crop': 224,
      'model.pp.max_len': 16,
      'temperature_init': 10.0,
    },
  ),
}

# Recipes of our own.
OURS = {
  'cifar10_scratch',
  'digits',
  'finetune_mini',
  'folder',
  'imagenette_scratch',
  'pretrain_mini',
  'clip_folder',
  'siglip_folder',
  'tiny_imagenet',
  'tiny_imagenet_transfer',
}


def load(name):
  """Returns the config of 'FILE' or 'FILE:ARGUMENT'."""
  file, _, argument = name.partition(':')
  module = run_file(f'configs/{file}.py')
  return module.get_config(*([argument] if argument else []))


def get(config, name):
  for part in name.split('.'):
    config = config[part]
  return config


@pytest.mark.parametrize('name', PUBLISHED)
def test_run_files_have_the_published_settings(name):
  _, settings = PUBLISHED[name]
  config = load(name)
  found = {key: get(config, key) for key in settings}
  if 'loss' in found:  # The labels decide it.
    found['loss'] = labels.complete(config, labels.MULTICLASS).loss
  assert found == settings


def test_every_run_file_is_published_or_ours():
  files = {path.stem for path in (REPOSITORY / 'configs').glob('*.py')}
  published = {name.partition(':')[0] for name in PUBLISHED}
  assert files == published | OURS | {'inference_time'}
  assert not published & OURS


@pytest.mark.parametrize(
  'name', sorted({n.partition(':')[0] for n in PUBLISHED})
)
def test_run_files_cite_their_paper(name):
  papers = {PUBLISHED[n][0] for n in PUBLISHED if n.partition(':')[0] == name}
  text = (REPOSITORY / 'configs' / f'{name}.py').read_text()
  if f'vit_jax/configs/{name}.py' in text:
    text += (REPOSITORY / 'vit_jax' / 'configs' / f'{name}.py').read_text()
  assert all(f'arXiv:{paper}' in text for paper in papers)


def test_augreg_weights_have_no_dropout_in_any_run_file():
  names = [name for name in registry.entries() if name.startswith('augreg-')]
  assert {'augreg-L_16', 'augreg-R50_L_32', 'augreg-L_16-384-timm'} <= set(
    names
  )
  for name in (*names, 'ViT-S_16'):
    config = common.with_model(common.get_config(), name)
    assert config.model.transformer.dropout_rate == 0.0, name
  for file in ('folder', 'sweep', 'vit'):
    assert load(f'{file}:augreg-L_16,/data').model.transformer.dropout_rate == 0
  # Other weights have the dropout of the official models.py.
  assert load('folder:l16,/data').model.transformer.dropout_rate == 0.1


@pytest.mark.parametrize('file', ['pretrain', 'pretrain_augreg'])
def test_pretraining_files_refuse_other_models(file):
  with pytest.raises(ValueError, match="ViTs and hybrids, not 'mixer_b16'"):
    load(f'{file}:mixer_b16,imagenet2012')
