"""Makes the golden DINOs of transformers.

python tests/golden/make_dino.py, where PyTorch and transformers are installed.
"""

import pathlib
import sys

import numpy as np
import torch
import transformers

GOLDEN = pathlib.Path(__file__).parent
sys.path.append(str(GOLDEN.parent))
import live  # noqa: E402

_SIZES = {
  'hidden_size': 16,
  'num_hidden_layers': 2,
  'num_attention_heads': 2,
  'layerscale_value': 0.5,
}


def models():
  """Returns models by the name of their folder, with a larger image size."""
  small = _SIZES | {'image_size': 24, 'patch_size': 8, 'mlp_ratio': 2}
  return {
    'hf_dinov2': (
      transformers.Dinov2ForImageClassification(
        transformers.Dinov2Config(**small, num_labels=3)
      ),
      (40, 24),
    ),
    'hf_dinov2_registers': (
      transformers.Dinov2WithRegistersModel(
        transformers.Dinov2WithRegistersConfig(
          **small, num_register_tokens=2, use_swiglu_ffn=True, qkv_bias=False
        )
      ),
      (16, 40),
    ),
    'hf_dinov3': (
      transformers.DINOv3ViTModel(
        transformers.DINOv3ViTConfig(
          **_SIZES,
          image_size=[16, 24],
          patch_size=8,
          intermediate_size=20,
          use_gated_mlp=True,
          hidden_act='silu',
          num_register_tokens=3,
        )
      ),
      (24, 32),
    ),
  }


def main():
  for seed, (name, (model, larger)) in enumerate(models().items()):
    live.perturbed(model, seed).save_pretrained(GOLDEN / name)
    size = model.config.image_size
    arrays = {}
    for prefix, shape in (('', size), ('larger_', larger)):
      shape = (shape, shape) if isinstance(shape, int) else shape
      images = live.random_images(seed, shape)
      with torch.no_grad():
        y = model(pixel_values=live.as_torch(images))
      y = y.logits if hasattr(y, 'logits') else y.pooler_output
      arrays |= {f'{prefix}inputs': images, f'{prefix}outputs': y.numpy()}
    np.savez(GOLDEN / name / 'io.npz', **arrays)


if __name__ == '__main__':
  main()
