"""Makes the golden CLIPs `open_clip*`, with open_clip."""

import json
import pathlib

import numpy as np
import open_clip
import safetensors.torch
import torch

FOLDER = pathlib.Path(__file__).parent
VISION = {
  'image_size': 16,
  'layers': 2,
  'width': 24,
  'head_width': 8,
  'patch_size': 8,
}
TEXT = {
  'context_length': 8,
  'vocab_size': 40,
  'width': 16,
  'heads': 2,
  'layers': 2,
}
UNUSUAL = {
  'embed_dim': 12,
  'vision_cfg': {
    **VISION,
    'mlp_ratio': 2.3,
    'ls_init_value': 0.1,
    'no_ln_pre': True,
    'pool_type': 'avg',
    'final_ln_after_pool': True,
    'norm_kwargs': {'eps': 1e-6},
  },
  'text_cfg': {
    **TEXT,
    'hf_tokenizer_name': 'bert-base-uncased',
    'pool_type': 'last',
    'no_causal_mask': True,
    'proj_bias': True,
    'act_kwargs': {'approximate': 'tanh'},
  },
}


def save(name, model_cfg, cls=open_clip.CLIP, preprocess=None, **options):
  """Writes a model whose parameters were all changed, inputs and outputs."""
  model = cls(**model_cfg, **options).eval()
  with torch.no_grad():
    for parameter in model.parameters():
      parameter.add_(torch.randn_like(parameter) * 0.1)
  folder = FOLDER / name
  folder.mkdir(exist_ok=True)
  safetensors.torch.save_file(
    {k: x.contiguous() for k, x in model.state_dict().items()},
    folder / 'open_clip_model.safetensors',
  )
  config = {'model_cfg': model_cfg, 'preprocess_cfg': preprocess or {}}
  (folder / 'open_clip_config.json').write_text(json.dumps(config, indent=2))
  images = torch.rand(3, 3, 16, 16) * 2 - 1
  tokens = torch.randint(0, 38, (4, 8))
  for i in range(4):
    tokens[i, 7 - i] = 39
    tokens[i, 8 - i :] = 0
  with torch.no_grad():
    zimg = model.encode_image(images, normalize=True)
    ztxt = model.encode_text(tokens, normalize=True)
    logits = model.logit_scale.exp() * zimg @ ztxt.T
    if model.logit_bias is not None:
      logits += model.logit_bias
  np.savez(
    folder / 'io.npz',
    images=images.permute(0, 2, 3, 1).numpy(),
    tokens=tokens.numpy().astype(np.int32),
    zimg=zimg.numpy(),
    ztxt=ztxt.numpy(),
    logits=logits.numpy(),
  )


def main():
  torch.manual_seed(0)
  usual = {'embed_dim': 12, 'vision_cfg': VISION, 'text_cfg': TEXT}
  save('open_clip', {**usual, 'quick_gelu': True})
  save(
    'open_clip_unusual',
    UNUSUAL,
    open_clip.CustomTextCLIP,
    {'mean': [0.5] * 3, 'std': [0.5] * 3, 'resize_mode': 'squash'},
    init_logit_bias=-1.0,
  )


if __name__ == '__main__':
  main()
