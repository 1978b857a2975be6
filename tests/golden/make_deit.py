"""Makes hf_deit*, hf_ijepa*, hf_vit_{mae,msn,no_bias} with transformers 5.23.

python tests/golden/make_deit.py
"""

import pathlib

import numpy as np
import torch
import transformers

FOLDER = pathlib.Path(__file__).parent

SIZES = {
  'hidden_size': 16,
  'num_hidden_layers': 2,
  'num_attention_heads': 2,
  'intermediate_size': 24,
  'patch_size': (4, 8),
  'image_size': (16, 24),
}

SQUARE = SIZES | {'patch_size': 8, 'image_size': 24, 'mask_ratio': 0.0}

MODELS = {
  'hf_deit': transformers.DeiTForImageClassification(
    transformers.DeiTConfig(
      **SIZES, num_labels=3, hidden_act='gelu_pytorch_tanh'
    )
  ),
  'hf_deit_teacher': transformers.DeiTForImageClassificationWithTeacher(
    transformers.DeiTConfig(**SIZES, num_labels=3)
  ),
  'hf_deit_model': transformers.DeiTModel(
    transformers.DeiTConfig(**SIZES, pooler_output_size=10)
  ),
  'hf_vit_mae': transformers.ViTMAEForPreTraining(
    transformers.ViTMAEConfig(
      **SQUARE,
      decoder_hidden_size=8,
      decoder_num_hidden_layers=1,
      decoder_num_attention_heads=1,
      decoder_intermediate_size=8,
    )
  ),
  'hf_vit_no_bias': transformers.ViTForImageClassification(
    transformers.ViTConfig(
      **SIZES, num_labels=3, qkv_bias=False, hidden_act='quick_gelu'
    )
  ),
  'hf_vit_msn': transformers.ViTMSNForImageClassification(
    transformers.ViTMSNConfig(**SIZES, num_labels=3)
  ),
  'hf_ijepa': transformers.IJepaForImageClassification(
    transformers.IJepaConfig(**SIZES, num_labels=3)
  ),
}


def outputs(model, images):
  """Returns logits, else the pooled features."""
  if hasattr(model, 'decoder'):
    return model.vit(images).last_hidden_state[:, 0]
  result = model(images)
  return getattr(result, 'logits', getattr(result, 'pooler_output', None))


@torch.no_grad()
def main():
  torch.manual_seed(0)
  for name, model in MODELS.items():
    for parameter in model.eval().parameters():
      parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(FOLDER / name)
    images = torch.rand(2, 3, *np.broadcast_to(model.config.image_size, 2))
    images = images * 2 - 1
    np.savez(
      FOLDER / name / 'io.npz',
      inputs=images.permute(0, 2, 3, 1).numpy(),
      outputs=outputs(model, images).numpy(),
    )


if __name__ == '__main__':
  main()
