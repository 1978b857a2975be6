"""Makes the golden CLIPs `clip_*`, with transformers: python make_clip.py."""

import pathlib

import numpy as np
import torch
import transformers

FOLDER = pathlib.Path(__file__).parent
TEXT = {
  'hidden_size': 16,
  'intermediate_size': 24,
  'num_hidden_layers': 2,
  'num_attention_heads': 2,
  'vocab_size': 40,
  'max_position_embeddings': 8,
  'bos_token_id': 38,
  'eos_token_id': 39,
}
VISION = {
  'hidden_size': 24,
  'intermediate_size': 32,
  'num_hidden_layers': 2,
  'num_attention_heads': 3,
  'image_size': 16,
  'patch_size': 8,
}


def save(name, model, outputs, tokens=None):
  """Writes a model whose parameters were all changed, inputs and outputs."""
  model.eval()
  with torch.no_grad():
    for parameter in model.parameters():
      parameter.add_(torch.randn_like(parameter) * 0.1)
  model.save_pretrained(FOLDER / name)
  images = torch.rand(3, 3, 16, 16) * 2 - 1
  arrays = {'images': images.permute(0, 2, 3, 1).numpy()}
  inputs = {'pixel_values': images}
  if tokens is not None:
    arrays['tokens'] = tokens.numpy().astype(np.int32)
    inputs['input_ids'] = tokens
  with torch.no_grad():
    results = model(**inputs)
  for output in outputs:
    arrays[output] = getattr(results, output).numpy()
  np.savez(FOLDER / name / 'io.npz', **arrays)


def main():
  torch.manual_seed(0)
  tokens = torch.randint(0, 38, (4, 8))
  for i in range(4):
    tokens[i, 7 - i :] = 39
  both = ('image_embeds', 'text_embeds', 'logits_per_image')
  config = transformers.CLIPConfig(
    text_config=TEXT, vision_config=VISION, projection_dim=12
  )
  save('clip', transformers.CLIPModel(config), both, tokens)
  old = transformers.CLIPConfig(
    text_config={**TEXT, 'eos_token_id': 2, 'hidden_act': 'gelu'},
    vision_config={**VISION, 'hidden_act': 'gelu'},
    projection_dim=12,
  )
  save('clip_gelu', transformers.CLIPModel(old), both, tokens)
  vision = transformers.CLIPVisionConfig(**VISION, projection_dim=12)
  image = transformers.CLIPVisionModel(vision)
  save('clip_image', image, ('pooler_output',))
  projected = transformers.CLIPVisionModelWithProjection(vision)
  save('clip_projected', projected, ('image_embeds',))
  config = transformers.CLIPConfig(
    text_config=TEXT, vision_config=VISION, num_labels=5
  )
  classifier = transformers.CLIPForImageClassification(config)
  save('clip_classifier', classifier, ('logits',))


if __name__ == '__main__':
  main()
