"""Models that are not read: what they are, and what no model here has of them.

Names are a `model_type` of transformers or an architecture of timm.
"""

import re

# (pattern of names, what the model is, what it has that is missing here)
ROWS = (
  (r'naflexvit_.*', 'a NaFlex ViT of timm', 'its names'),
  (r'.*(clip|siglip)\w*_text_model', 'a text tower', 'texts without images'),
  (r'swin.*|maskformer-swin', 'a Swin', 'attention in shifted windows'),
  (r'beit3_.*', 'a BEiT-3', 'LayerNorm inside attention and MLP'),
  (
    r'beit.*|data2vec-vision|vit_s?relpos_.*',
    'a BEiT or a ViT like it',
    'attention with relative positions',
  ),
  (
    r'sam\d?(_.*|-.*)?|samvit_.*|vitdet|.*hieradet.*',
    'an encoder of SAM or ViTDet',
    'attention in windows with relative positions',
  ),
  (
    r'eva(?!_large_)\d*_.*|vit_pe_.*|vit_.*_(rope_.*|lingbot|sapiens2)',
    'an EVA or a ViT like it',
    'its rotations of queries and keys',
  ),
  (
    r'(max|maxx|coat|rmlp_|coatnext)\w*(vit|net).*',
    'a MaxViT or CoAtNet',
    'convolutions between its blocks',
  ),
  (
    r'(sam2_)?hiera.*|p[iv]t_.*|pvt|mvit.*|levit.*|nest_.*|twins_.*|davit_.*'
    r'|gcvit_.*|tiny_vit.*|efficientvit.*|mobilevit.*|fastvit.*|vitamin_.*'
    r'|segformer|cvt|focalnet.*|poolformer.*|swiftformer.*|dinat|crossvit_.*',
    'a Hiera or another ViT with stages',
    'stages of different widths',
  ),
  (
    r'(dinov3_)?convnext.*|(res|reg|efficient|mobile|dense|cs)net.*|bit|vgg.*',
    'a convolutional network',
    'its blocks',
  ),
  (r'cait_.*|xcit_.*|convit_.*', 'a relative of DeiT', 'its attention'),
  (r'aimv2.*', 'an AIMv2', 'RMSNorm'),
  (
    r'vivit|videomae|vjepa2|timesformer|xclip|videoprism.*',
    'a model of videos',
    'frames',
  ),
  (
    r'align|altclip|blip.*|chinese_clip|clipseg|coca|flava|git|groupvit'
    r'|metaclip_2|owl.*|vision-text-dual-encoder',
    'a model of images and texts, but neither CLIP nor SigLIP',
    'its other tower or its decoder',
  ),
  (
    r'timm_wrapper',
    'a model of timm inside transformers',
    'that wrapper. Save its `timm_model` with timm.models.save_for_hf',
  ),
)


def reason(name: str) -> str | None:
  """Returns what a model is and what is missing; None for names not known."""
  for pattern, what, missing in ROWS:
    if re.fullmatch(pattern, name):
      return f'{what}; no model here has {missing}'
  return None
