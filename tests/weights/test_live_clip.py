"""Random CLIPs of transformers and open_clip, and its tokenisers.

Runs only where PyTorch and the library are installed.
"""

import json
import random

from golden_files import golden_json
import live
import numpy as np
import PIL.Image
import pytest

from vit_jax import checkpoint
from vit_jax import models
from vit_jax.data.augmentation import transforms
from vit_jax.data.texts import text
from vit_jax.weights import formats

torch = pytest.importorskip('torch')
transformers = pytest.importorskip('transformers')


def tower(rng):
  """Returns the settings that both towers have in transformers."""
  heads = rng.randint(1, 3)
  return {
    'hidden_size': heads * rng.choice([4, 8, 10]),
    'intermediate_size': rng.choice([16, 30]),
    'num_hidden_layers': rng.randint(1, 3),
    'num_attention_heads': heads,
    'hidden_act': rng.choice(['quick_gelu', 'gelu', 'gelu_pytorch_tanh']),
    'layer_norm_eps': rng.choice([1e-5, 1e-6]),
  }


def vision(rng):
  patch = rng.choice([4, 8])
  return {
    **tower(rng),
    'image_size': patch * rng.randint(1, 4),
    'patch_size': patch,
    'num_channels': rng.choice([1, 3]),
    'projection_dim': rng.choice([6, 12]),
  }


def tokens_of(rng, size, length, end):
  """Returns tokens [4, length] that end somewhere."""
  made = torch.tensor(
    [[rng.randrange(size - 2) for _ in range(length)] for _ in range(4)]
  )
  for i in range(4):
    made[i, rng.randint(1, length - 1) :] = end
  return made


def pair(weights, images, tokens):
  """Returns embeddings of images and texts, and their logits."""
  zimg, ztxt, out = weights.module().apply(
    {'params': weights.params}, images=images, tokens=tokens.numpy()
  )
  return zimg, ztxt, models.similarities(zimg, ztxt, out)


def assert_close(seed, got, want):
  for ours, theirs in zip(got, want, strict=True):
    theirs = theirs.detach().numpy()
    difference = np.abs(np.asarray(ours) - theirs).max()
    print('difference', seed, difference, np.abs(theirs).max())
    np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize('seed', range(20))
def test_random_pairs_equal_transformers(tmp_path, seed):
  rng = random.Random(seed)
  size, length = rng.choice([30, 50]), rng.choice([5, 9])
  is_old = rng.random() < 0.3
  config = transformers.CLIPConfig(
    text_config={
      **tower(rng),
      'vocab_size': size,
      'max_position_embeddings': length,
      'bos_token_id': size - 2,
      'eos_token_id': 2 if is_old else size - 1,
    },
    vision_config=vision(rng),
    projection_dim=rng.choice([6, 12]),
  )
  model = live.perturbed(transformers.CLIPModel(config), seed)
  model.save_pretrained(tmp_path / 'x')
  weights = checkpoint.read(tmp_path / 'x')
  *shape, channels = weights.image_shape
  images = live.random_images(seed, shape, channels)
  tokens = tokens_of(rng, size, length, size - 1)
  with torch.no_grad():
    want = model(pixel_values=live.as_torch(images), input_ids=tokens)
  assert_close(
    seed,
    pair(weights, images, tokens),
    (want.image_embeds, want.text_embeds, want.logits_per_image),
  )
  formats.convert(weights, str(tmp_path / 'y'), 'huggingface')
  live.assert_same_arrays(tmp_path / 'x', tmp_path / 'y')
  again = transformers.CLIPModel.from_pretrained(tmp_path / 'y').eval()
  with torch.no_grad():
    logits = again(
      pixel_values=live.as_torch(images), input_ids=tokens
    ).logits_per_image
  if not is_old:  # Written by what it means.
    assert again.config.text_config.eos_token_id == size - 1
  np.testing.assert_array_equal(logits, want.logits_per_image)


@pytest.mark.parametrize('seed', range(20))
def test_random_image_towers_equal_transformers_and_timm(tmp_path, seed):
  rng = random.Random(seed)
  classes = {
    'pooler_output': transformers.CLIPVisionModel,
    'image_embeds': transformers.CLIPVisionModelWithProjection,
    'logits': transformers.CLIPForImageClassification,
  }
  name = rng.choice(list(classes))
  config = transformers.CLIPVisionConfig(**vision(rng))
  if name == 'logits':
    config = transformers.CLIPConfig(
      vision_config=config.to_dict(), num_labels=4
    )
  model = live.perturbed(classes[name](config), seed)
  model.save_pretrained(tmp_path / 'x')
  weights = checkpoint.read(tmp_path / 'x')
  *shape, channels = weights.image_shape
  images = live.random_images(seed, shape, channels)
  with torch.no_grad():
    want = getattr(model(pixel_values=live.as_torch(images)), name)
  assert_close(seed, [live.output(weights, images)], [want])
  formats.convert(weights, str(tmp_path / 'y'), 'huggingface')
  again = classes[name].from_pretrained(tmp_path / 'y').eval()
  with torch.no_grad():
    same = getattr(again(pixel_values=live.as_torch(images)), name)
  np.testing.assert_array_equal(same, want)
  if name == 'logits':  # timm has no model without a last LayerNorm.
    return
  timm = pytest.importorskip('timm')
  formats.convert(weights, str(tmp_path / 'z'), 'timm')
  theirs = timm.create_model(f'local-dir:{tmp_path}/z', pretrained=True).eval()
  with torch.no_grad():
    same = theirs(live.as_torch(images)).numpy()
  if weights.model['transformer']['layer_norm_epsilon'] == 1e-5:
    np.testing.assert_allclose(same, want, atol=1e-5, rtol=1e-5)
  back = live.output(checkpoint.read(tmp_path / 'z'), images)
  np.testing.assert_array_equal(back, live.output(weights, images))


@pytest.mark.parametrize('seed', range(20))
def test_random_pairs_equal_open_clip(tmp_path, seed):
  open_clip = pytest.importorskip('open_clip', exc_type=ImportError)
  from safetensors.torch import save_file

  rng = random.Random(seed)
  heads, patch, size = rng.randint(1, 3), rng.choice([4, 8]), 40
  both = lambda: {
    'layers': rng.randint(1, 3),
    'mlp_ratio': rng.choice([2, 4.3637]),
    'ls_init_value': rng.choice([None, None, 0.1]),
    'norm_kwargs': rng.choice([None, {'eps': 1e-6}]),
  }
  model_cfg = {
    'embed_dim': rng.choice([6, 12]),
    'quick_gelu': rng.random() < 0.5,
    'vision_cfg': {
      **both(),
      'image_size': rng.choice([4, 8, 24]) if patch == 4 else [16, 24],
      'width': heads * 8,
      'head_width': 8,
      'patch_size': patch,
      'no_ln_pre': rng.random() < 0.3,
      'pool_type': rng.choice(['tok', 'avg']),
      'final_ln_after_pool': rng.random() < 0.3,
    },
    'text_cfg': {
      **both(),
      'context_length': 7,
      'vocab_size': size,
      'width': 16,
      'heads': rng.choice([1, 2, 4]),
      'no_causal_mask': rng.random() < 0.2,
      'pool_type': rng.choice(['argmax', 'eos', 'last']),
      'eos_id': size - 1,
      'proj_bias': rng.random() < 0.2,
    },
  }
  cls = rng.choice([open_clip.CLIP, open_clip.CustomTextCLIP])
  bias = rng.choice([None, -2.0])
  model = live.perturbed(cls(**model_cfg, init_logit_bias=bias), seed)
  arrays = {k: x.contiguous() for k, x in model.state_dict().items()}
  save_file(arrays, tmp_path / 'open_clip_model.safetensors')
  config = {'model_cfg': model_cfg, 'preprocess_cfg': {}}
  (tmp_path / 'open_clip_config.json').write_text(json.dumps(config))
  weights = checkpoint.read(tmp_path)
  images = live.random_images(seed, weights.image_shape[:2])
  tokens = tokens_of(rng, size, 7, size - 1)
  with torch.no_grad():
    zimg = model.encode_image(live.as_torch(images), normalize=True)
    ztxt = model.encode_text(tokens, normalize=True)
    logits = model.logit_scale.exp() * zimg @ ztxt.T + (model.logit_bias or 0)
  assert_close(seed, pair(weights, images, tokens), (zimg, ztxt, logits))


def test_the_whole_vocabulary_gives_the_ids_of_both_libraries():
  open_clip = pytest.importorskip('open_clip', exc_type=ImportError)
  from open_clip import tokenizer as module

  texts = golden_json('clip_tokens/texts.json')
  theirs, path = open_clip.SimpleTokenizer(), module.default_bpe()
  names = {
    '<start_of_text>': '<|startoftext|>',
    '<end_of_text>': '<|endoftext|>',
  }
  ids = {names.get(k, k): i for k, i in theirs.encoder.items()}
  other = transformers.CLIPTokenizer(vocab=ids, merges=list(theirs.bpe_ranks))
  want = other(texts, padding='max_length', truncation=True, max_length=77)
  got = text.get_tokenizer('clip', path, 77)(texts)
  np.testing.assert_array_equal(got, want['input_ids'])
  got = text.get_tokenizer('open_clip', path, 77)(texts)
  wrong = np.any(got != theirs(texts).numpy(), axis=1)
  # ftfy takes two of the random texts for text in a wrong encoding.
  assert wrong.sum() == 2


@pytest.mark.parametrize('shape', [(375, 500), (300, 224), (100, 90)])
def test_pixels_are_those_of_the_processor(shape):
  rng = np.random.default_rng(0)
  image = rng.integers(0, 256, (*shape, 3), np.uint8)
  processor = transformers.CLIPImageProcessorPil()
  want = processor(PIL.Image.fromarray(image), return_tensors='np')
  got = transforms.EvalImage((224, 224), 224, 'bicubic').map({'image': image})
  mean, std = np.array(processor.image_mean), np.array(processor.image_std)
  pixels = (got['image'] / 255 - mean) / std
  np.testing.assert_allclose(
    pixels, want['pixel_values'][0].transpose(1, 2, 0), atol=1e-5
  )
