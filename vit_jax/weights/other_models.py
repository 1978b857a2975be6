"""Models that are not read: what they are, and what no model here has of them.

Names are a `model_type` of transformers or an architecture of timm.
"""

import re

# (pattern of names, what the model is, what it has that is missing here)
ROWS = (
  (
    r'naflexvit_.*',
    'a NaFlex ViT of timm',
    'images of several shapes in a batch',
  ),
  (r'.*(clip|siglip)\w*_text_model', 'a text tower', 'texts without images'),
  (
    r'audio-spectrogram-transformer|clap|hubert|wav2vec2.*|whisper',
    'a model of sounds',
    'sounds',
  ),
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
    r'eva_giant_.*|eva02_enormous_.*',
    'an EVA',
    'the `Eva` of timm without rotations',
  ),
  (
    r'eva(?!_large_)\d*_.*|vit_pe_.*|vit_.*_(rope_.*|lingbot|sapiens2)'
    r'|sapiens\d',
    'an EVA or a ViT like it',
    'its rotations of queries and keys',
  ),
  (
    r'vit_\w+_(18x2|xp)_.*|vit_d?pwee_.*',
    'a ViT with parallel parts',
    'more than one attention or MLP in a block',
  ),
  (
    r'vit_\w+_rpn_.*',
    'a ViT with residual post-norm',
    'LayerNorm after attention and MLP, before their outputs are added',
  ),
  (
    r'(max|maxx|coat|rmlp_|coatnext)\w*(vit|net).*',
    'a MaxViT or CoAtNet',
    'convolutions between its blocks',
  ),
  (
    r'(sam2_)?hiera.*|p[iv]t_.*|pvt|mvit.*|levit.*|nest_.*|twins_.*|davit_.*'
    r'|gcvit_.*|tiny_vit.*|efficientvi[tm].*|mobilevit.*|fastvit.*|vitamin_.*'
    r'|segformer|cvt|focalnet.*|poolformer.*|swiftformer.*|dinat|crossvit_.*'
    r'|coat_.*|edgenext_.*|efficientformer.*|nextvit_.*|repvit_.*|shvit_.*'
    r'|visformer_.*|csatv2.*|(ca|conv|i)former_.*|lowformer_.*|sequencer2d_.*',
    'a Hiera or another network with stages',
    'stages of different widths',
  ),
  (
    r'(dinov3_)?convnext.*|bit|vgg.*|convmixer_.*|x?(in)?ception.*|mambaout_.*'
    r'|(?!vit_)\w*(res|reg|efficient|mobile|dense|cs|ghost|hg|star)ne[tx]\w*',
    'a convolutional network',
    'its blocks',
  ),
  (
    r'g_?mlp_.*|resmlp_.*|gmixer_.*',
    'an MLP, but no Mixer',
    'its way to mix tokens',
  ),
  (
    r'cait_.*|xcit_.*|convit_.*|tnt_.*|volo_.*',
    'a relative of DeiT',
    'its attention',
  ),
  (r'aimv2.*', 'an AIMv2', 'RMSNorm'),
  (
    r'vivit|videomae|vjepa2|timesformer|xclip|videoprism.*',
    'a model of videos',
    'frames',
  ),
  (
    r'yolos|[\w-]*detr|rt_detr.*|dpt|zoedepth|depth_(anything|pro)|mask2?former'
    r'|oneformer|upernet|eomt.*|vitpose|vitmatte|grounding-dino',
    'a model of boxes, masks or depths',
    'its decoder',
  ),
  (
    r'align|altclip|blip.*|chinese_clip|clipseg|coca|flava|git|groupvit'
    r'|metaclip_2|owl.*|vision-text-dual-encoder|llava.*|paligemma|pixtral'
    r'|qwen[\d_]+vl.*|idefics.*|vilt|vision-encoder-decoder|gemma3|mllama'
    r'|internvl.*|smolvlm.*|florence.*',
    'a model of images and texts, but neither CLIP nor SigLIP',
    'its other tower or its decoder. If its image tower is a CLIP, a SigLIP or a'
    ' DINOv2, save that alone by its save_pretrained',
  ),
  (
    r'[\w-]*bert(a|a-v2)?|gpt.*|m?t5|llama|mistral|gemma2?|qwen[23]|opt',
    'a model of texts',
    'texts without images',
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
