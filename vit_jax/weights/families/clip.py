"""CLIP (arXiv:2103.00020) and OpenCLIP (arXiv:2212.07143) in transformers."""

from typing import Any

import numpy as np

from vit_jax.weights.families import towers
from vit_jax.weights.families.record import Arrays
from vit_jax.weights.families.record import Family
from vit_jax.weights.families.record import Json

_DEFAULTS: dict[str, Any] = {'act': 'quick_gelu', 'epsilon': 1e-5}
_VOCAB_SIZE = 49_408

MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)
TEMPERATURE_MAX = 100.0  # Sec. 2.5; training stays at or below it.


def image_tower(config: Json, **fields: Any) -> dict[str, Any]:
  """Returns our config of the image tower with a JSON of transformers."""
  model = towers.vision(
    config, patch_size=32, posemb_resize='bicubic', **_DEFAULTS, **fields
  )
  model['patches']['bias'] = False
  model['transformer']['first_norm'] = True
  return model


def two_towers(
  image: Json, text: Json, max_len: int, width: int, tokenizer: str
) -> dict[str, Any]:
  """Returns our config of two towers and their projections to `width`."""
  return {
    'image': {**image, 'projection': width},
    'text_model': 'text_transformer',
    'text': text,
    'pp': {'tokenizer_name': tokenizer, 'max_len': max_len},
    'out_dim': (None, width),
    'temperature_init': float(np.log(1 / 0.07)),
    'temperature_max': TEMPERATURE_MAX,
  }


def _read(config: Json, head: bool) -> dict[str, Any]:
  del head
  text = towers.config_of(config, 'text')
  vocab_size = text.get('vocab_size', _VOCAB_SIZE)
  end = text.get('eos_token_id', vocab_size - 1)
  if end == 2:  # Old files; the highest id is meant.
    end = vocab_size - 1
  text_tower = towers.text(
    text,
    vocab_size=_VOCAB_SIZE,
    block={'causal': True},
    end=end,
    head_bias=False,
    **_DEFAULTS,
  )
  return two_towers(
    image_tower(towers.config_of(config, 'vision')),
    text_tower,
    text.get('max_position_embeddings', 77),
    config.get('projection_dim', 512),
    'clip',
  )


def _write(model: Json) -> dict[str, Any]:
  width, end = model['out_dim'][1], model['text'].get('end') or 0
  return {
    'projection_dim': width,
    'text_config': {
      **towers.text_json(model['text'], model['pp']['max_len']),
      'model_type': 'clip_text_model',
      'projection_dim': width,
      'eos_token_id': end,
      'bos_token_id': max(end - 1, 0),
    },
    'vision_config': {
      **towers.vision_json(model['image']),
      'model_type': 'clip_vision_model',
      'projection_dim': width,
    },
  }


def _vision_names(model: Json) -> dict[str, str]:
  names = towers.vision_names(
    model,
    [
      # Their spelling.
      ('Transformer/first_norm', 'pre_layrnorm'),
    ],
    cls='embeddings.class_embedding',
  )
  return {
    **towers.prefixed(names, theirs='vision_model.'),
    'projection/kernel': 'visual_projection.weight',
  }


def _names(model: Json, head: bool) -> dict[str, str]:
  del head
  return {
    't': 'logit_scale',
    **towers.prefixed(_vision_names(model['image']), 'img/'),
    **towers.prefixed(
      towers.text_names(model['text'], 'text_projection'), 'txt/'
    ),
  }


def _image_names(model: Json, head: bool) -> dict[str, str]:
  del head
  return _vision_names(model) | {
    'head/kernel': 'classifier.weight',
    'head/bias': 'classifier.bias',
  }


def _read_image(config: Json, head: bool) -> dict[str, Any]:
  del head
  return image_tower(config)


def _read_projected(config: Json, head: bool) -> dict[str, Any]:
  del head
  return image_tower(config, projection=config.get('projection_dim', 512))


def _write_image(model: Json) -> dict[str, Any]:
  return towers.vision_json(model)


def _write_projected(model: Json) -> dict[str, Any]:
  return {**_write_image(model), 'projection_dim': model['projection']}


def _read_classifier(config: Json, head: bool) -> dict[str, Any]:
  del head
  vision = towers.config_of(config, 'vision')
  model = image_tower(vision, classifier='token_gap')
  model['transformer']['final_norm'] = False
  return model


def _write_classifier(model: Json) -> dict[str, Any]:
  return {
    'vision_config': {
      **towers.vision_json(model),
      'model_type': 'clip_vision_model',
    },
    'text_config': {'model_type': 'clip_text_model'},
  }


def _with_prefix(arrays: Arrays) -> dict[str, np.ndarray]:
  """Adds the prefix that transformers 5 leaves out of an image tower alone."""
  parts = ('embeddings.', 'encoder.', 'pre_layrnorm.', 'post_layernorm.')
  return {
    f'vision_model.{name}' if name.startswith(parts) else name: x
    for name, x in arrays.items()
  }


def _with_norm(arrays: Arrays) -> dict[str, np.ndarray]:
  """Adds the LayerNorm that transformers keeps, but does not use."""
  width = arrays['vision_model.pre_layrnorm.weight'].shape
  return {
    **arrays,
    'vision_model.post_layernorm.weight': np.ones(width, np.float32),
    'vision_model.post_layernorm.bias': np.zeros(width, np.float32),
  }


_PREPROCESSOR = {
  'image_mean': list(MEAN),
  'image_std': list(STD),
  'resample': 3,
  'do_center_crop': True,
}
_SHARED: dict[str, Any] = {
  'square': ('image_size', 'patch_size'),
  'axes': {**towers.AXES, 'logit_scale': 1},
  'preprocessor': _PREPROCESSOR,
}
_IDS = ('.position_ids',)  # Of earlier versions.

_TOKENIZER = {
  'tokenizer_class': 'CLIPTokenizer',
  'bos_token': '<|startoftext|>',
  'eos_token': '<|endoftext|>',
  'pad_token': '<|endoftext|>',
  'unk_token': '<|endoftext|>',
}

CLIP = Family(
  read=_read,
  write=_write,
  names=_names,
  architectures=('CLIPModel', None),
  marker='logit_scale',
  ignored=_IDS,
  tokenizer={'clip': _TOKENIZER, 'open_clip': _TOKENIZER},
  **_SHARED,
)

CLASSIFIER = Family(
  read=_read_classifier,
  write=_write_classifier,
  names=_image_names,
  architectures=(None, 'CLIPForImageClassification'),
  join=_with_norm,
  ignored=(*_IDS, '.post_layernorm.weight', '.post_layernorm.bias'),
  model_type='clip',
  marker='classifier.weight',
  **_SHARED,
)

PROJECTED = Family(
  read=_read_projected,
  write=_write_projected,
  names=_image_names,
  architectures=('CLIPVisionModelWithProjection', None),
  split=_with_prefix,
  ignored=_IDS,
  model_type='clip_vision_model',
  marker='visual_projection.weight',
  **_SHARED,
)

IMAGE = Family(
  read=_read_image,
  write=_write_image,
  names=_image_names,
  architectures=('CLIPVisionModel', None),
  split=_with_prefix,
  ignored=_IDS,
  **_SHARED,
)
