"""Makes the golden SigLIPs `siglip*`, with transformers: python make_siglip.py.

`siglip_big_vision.npz` has the arrays of `siglip` by big_vision's names, as given
by the script that converted the published models for transformers.
"""

import pathlib

import numpy as np
import torch
import transformers

FOLDER = pathlib.Path(__file__).parent
TEXT = {
  'hidden_size': 16,
  'intermediate_size': 20,
  'num_hidden_layers': 2,
  'num_attention_heads': 2,
  'vocab_size': 240,
  'max_position_embeddings': 8,
  'projection_size': 24,
  'bos_token_id': None,
  'eos_token_id': 1,
}
VISION = {
  'hidden_size': 24,
  'intermediate_size': 20,
  'num_hidden_layers': 2,
  'num_attention_heads': 3,
  'image_size': 16,
  'patch_size': 4,
}
BLOCK = {
  'layer_norm1.weight': 'LayerNorm_0/scale',
  'layer_norm1.bias': 'LayerNorm_0/bias',
  'layer_norm2.weight': 'LayerNorm_1/scale',
  'layer_norm2.bias': 'LayerNorm_1/bias',
  'mlp.fc1.weight': 'MlpBlock_0/Dense_0/kernel',
  'mlp.fc1.bias': 'MlpBlock_0/Dense_0/bias',
  'mlp.fc2.weight': 'MlpBlock_0/Dense_1/kernel',
  'mlp.fc2.bias': 'MlpBlock_0/Dense_1/bias',
  'self_attn.q_proj.weight': 'MultiHeadDotProductAttention_0/query/kernel',
  'self_attn.q_proj.bias': 'MultiHeadDotProductAttention_0/query/bias',
  'self_attn.k_proj.weight': 'MultiHeadDotProductAttention_0/key/kernel',
  'self_attn.k_proj.bias': 'MultiHeadDotProductAttention_0/key/bias',
  'self_attn.v_proj.weight': 'MultiHeadDotProductAttention_0/value/kernel',
  'self_attn.v_proj.bias': 'MultiHeadDotProductAttention_0/value/bias',
  'self_attn.out_proj.weight': 'MultiHeadDotProductAttention_0/out/kernel',
  'self_attn.out_proj.bias': 'MultiHeadDotProductAttention_0/out/bias',
}
POOLING = {
  'head.probe': 'probe',
  'head.attention.out_proj.weight': 'MultiHeadDotProductAttention_0/out/kernel',
  'head.attention.out_proj.bias': 'MultiHeadDotProductAttention_0/out/bias',
  'head.layernorm.weight': 'LayerNorm_0/scale',
  'head.layernorm.bias': 'LayerNorm_0/bias',
  'head.mlp.fc1.weight': 'MlpBlock_0/Dense_0/kernel',
  'head.mlp.fc1.bias': 'MlpBlock_0/Dense_0/bias',
  'head.mlp.fc2.weight': 'MlpBlock_0/Dense_1/kernel',
  'head.mlp.fc2.bias': 'MlpBlock_0/Dense_1/bias',
}
NAMES = {
  'logit_scale': 't',
  'logit_bias': 'b',
  'vision_model.embeddings.patch_embedding.weight': 'img/embedding/kernel',
  'vision_model.embeddings.patch_embedding.bias': 'img/embedding/bias',
  'vision_model.embeddings.position_embedding.weight': 'img/pos_embedding',
  'vision_model.post_layernorm.weight': 'img/Transformer/encoder_norm/scale',
  'vision_model.post_layernorm.bias': 'img/Transformer/encoder_norm/bias',
  'text_model.embeddings.token_embedding.weight': 'txt/Embed_0/embedding',
  'text_model.embeddings.position_embedding.weight': 'txt/pos_embedding',
  'text_model.final_layer_norm.weight': 'txt/Encoder_0/encoder_norm/scale',
  'text_model.final_layer_norm.bias': 'txt/Encoder_0/encoder_norm/bias',
  'text_model.head.weight': 'txt/head/kernel',
  'text_model.head.bias': 'txt/head/bias',
  **{f'vision_model.{k}': f'img/MAPHead_0/{v}' for k, v in POOLING.items()},
}
for tower, encoder in (
  ('vision', 'img/Transformer'),
  ('text', 'txt/Encoder_0'),
):
  for i in range(2):
    for theirs, ours in BLOCK.items():
      theirs = f'{tower}_model.encoder.layers.{i}.{theirs}'
      NAMES[theirs] = f'{encoder}/encoderblock_{i}/{ours}'


def big_vision_array(name, x, num_heads):
  """Returns an array with the axes that Flax gives it in big_vision."""
  if x.ndim == 4:
    return x.transpose(2, 3, 1, 0)
  if 'pos_embedding' in name:
    return x[None]
  if name.endswith('kernel'):
    x = x.T
  if '/out/kernel' in name:
    return x.reshape(num_heads, -1, x.shape[-1])
  if any(f'/{part}/' in name for part in ('query', 'key', 'value')):
    return x.reshape(*x.shape[:-1], num_heads, -1)
  return x


def save_big_vision(model, path):
  """Writes the arrays of a `SiglipModel` by big_vision's names."""
  state = {k: x.numpy() for k, x in model.state_dict().items()}
  packed = 'vision_model.head.attention.in_proj_'
  names = dict(NAMES)
  for kind, ours in (('weight', 'kernel'), ('bias', 'bias')):
    parts = np.split(state.pop(f'{packed}{kind}'), 3)
    for part, x in zip(('query', 'key', 'value'), parts, strict=True):
      names[part + kind] = (
        f'img/MAPHead_0/MultiHeadDotProductAttention_0/{part}/{ours}'
      )
      state[part + kind] = x
  heads = {'img': VISION, 'txt': TEXT}
  arrays = {}
  for theirs, x in state.items():
    name = names[theirs]
    sizes = heads.get(name[:3], VISION)
    arrays[f'params/{name}'] = big_vision_array(
      name, x, sizes['num_attention_heads']
    )
  np.savez(path, **arrays)


def flat_patches(images):
  """Returns what NaFlex models take, for images of one shape."""
  count, channels, height, width = images.shape
  size = VISION['patch_size']
  rows, columns = height // size, width // size
  patches = images.reshape(count, channels, rows, size, columns, size)
  patches = patches.permute(0, 2, 4, 3, 5, 1).reshape(count, rows * columns, -1)
  return {
    'pixel_values': patches,
    'pixel_attention_mask': torch.ones(patches.shape[:2], dtype=torch.long),
    'spatial_shapes': torch.tensor([[rows, columns]] * count),
  }


def save(name, model, outputs, tokens=None, wide=None):
  """Writes a model whose parameters were all changed, inputs and outputs.

  NaFlex models also get `wide` images.
  """
  model.eval()
  with torch.no_grad():
    for parameter in model.parameters():
      parameter.add_(torch.randn_like(parameter) * 0.1)
  model.save_pretrained(FOLDER / name)
  images = torch.rand(3, 3, 16, 16) * 2 - 1
  arrays = {'images': images.permute(0, 2, 3, 1).numpy()}
  is_naflex = name.startswith('siglip2')
  inputs = flat_patches(images) if is_naflex else {'pixel_values': images}
  if tokens is not None:
    arrays['tokens'] = tokens.numpy().astype(np.int32)
    inputs['input_ids'] = tokens
  with torch.no_grad():
    results = model(**inputs)
  for output in outputs:
    arrays[output] = getattr(results, output).numpy()
  if wide is not None:
    arrays['wide_images'] = wide.permute(0, 2, 3, 1).numpy()
    with torch.no_grad():
      results = model(**inputs | flat_patches(wide))
    arrays['wide_logits_per_image'] = results.logits_per_image.numpy()
  np.savez(FOLDER / name / 'io.npz', **arrays)


def main():
  torch.manual_seed(0)
  tokens = torch.randint(2, 200, (4, 8))
  for i in range(4):
    tokens[i, 7 - i :] = 1
  config = transformers.SiglipConfig(text_config=TEXT, vision_config=VISION)
  both = ('image_embeds', 'text_embeds', 'logits_per_image')
  pair = transformers.SiglipModel(config)
  save('siglip', pair, both, tokens)
  save_big_vision(pair, FOLDER / 'siglip_big_vision.npz')
  vision = transformers.SiglipVisionConfig(**VISION)
  image = transformers.SiglipVisionModel(vision)
  save('siglip_image', image, ('pooler_output',))
  config = transformers.SiglipConfig(
    text_config=TEXT, vision_config=VISION, num_labels=5
  )
  classifier = transformers.SiglipForImageClassification(config)
  save('siglip_classifier', classifier, ('logits',))
  vision = {**VISION, 'num_patches': 16}
  config = transformers.Siglip2Config(text_config=TEXT, vision_config=vision)
  wide = torch.rand(2, 3, 12, 20) * 2 - 1
  save('siglip2', transformers.Siglip2Model(config), both, tokens, wide)
  config = transformers.Siglip2VisionConfig(**vision)
  image = transformers.Siglip2VisionModel(config)
  save('siglip2_image', image, ('pooler_output',))


if __name__ == '__main__':
  main()
