"""Makes the golden ViTs of timm with parts that the official models do not have.

python tests/golden/make_timm.py, where PyTorch and timm are installed.
"""

import pathlib
import sys

import numpy as np
import timm
import torch

GOLDEN = pathlib.Path(__file__).parent
sys.path.append(str(GOLDEN.parent))
import live  # noqa: E402

_SIZES = {'patch_size': 8, 'embed_dim': 16, 'depth': 2, 'num_heads': 2}

# Folder to (architecture, arguments).
MODELS = {
  'timm_clip': (
    'vit_base_patch32_clip_quickgelu_224',
    {'img_size': [24, 16], 'num_classes': 0},
  ),
  'timm_map': (
    'vit_so400m_patch16_siglip_256',
    {'img_size': 16, 'reg_tokens': 2, 'qkv_bias': False, 'num_classes': 3},
  ),
  'timm_dinov2': (
    'vit_giant_patch14_reg4_dinov2',
    {'img_size': 16, 'num_classes': 0, 'mlp_ratio': 4},
  ),
  'timm_dinov3': (
    'vit_small_plus_patch16_dinov3_qkvb',
    {'img_size': [16, 24], 'num_classes': 3, 'global_pool': 'token'},
  ),
  'timm_deit_distilled': (
    'deit_tiny_distilled_patch16_224',
    {'img_size': [16, 24], 'num_classes': 3},
  ),
  'timm_deit3': (
    'deit3_small_patch16_224',
    {'img_size': [24, 16], 'num_classes': 3},
  ),
}


def main():
  for seed, (name, (architecture, arguments)) in enumerate(MODELS.items()):
    arguments = _SIZES | arguments
    model = live.perturbed(timm.create_model(architecture, **arguments), seed)
    arguments.pop('num_classes')
    timm.models.save_for_hf(
      model, GOLDEN / name, model_args=arguments, safe_serialization=True
    )
    images = live.random_images(seed, model.patch_embed.img_size)
    with torch.no_grad():
      outputs = model(live.as_torch(images)).numpy()
    np.savez(GOLDEN / name / 'io.npz', inputs=images, outputs=outputs)


if __name__ == '__main__':
  main()
