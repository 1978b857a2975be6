"""Two towers in transformers: what CLIP and SigLIP share."""

from collections.abc import Callable
from typing import Any

from vit_jax.weights import torch_layout
from vit_jax.weights.families import record
from vit_jax.weights.families.record import Json

_BLOCK = (
  ('LayerNorm_0', 'layer_norm1'),
  ('MultiHeadDotProductAttention_0/query', 'self_attn.q_proj'),
  ('MultiHeadDotProductAttention_0/key', 'self_attn.k_proj'),
  ('MultiHeadDotProductAttention_0/value', 'self_attn.v_proj'),
  ('MultiHeadDotProductAttention_0/out', 'self_attn.out_proj'),
  ('LayerNorm_1', 'layer_norm2'),
  ('MlpBlock_0/Dense_0', 'mlp.fc1'),
  ('MlpBlock_0/Dense_1', 'mlp.fc2'),
)

# Axes of length 1 that only our arrays have.
AXES = {'position_embedding.weight': 1, 'class_embedding': 2}


def config_of(config: Json, tower: str) -> Json:
  """Returns the JSON of a tower, 'vision' or 'text', of a `config.json`."""
  # Before 2023, the second name had the values that count.
  for name in (f'{tower}_config_dict', f'{tower}_config'):
    if config.get(name):
      return config[name]
  return {}


def vision(
  config: Json,
  *,
  act: str,
  epsilon: float,
  patch_size: int,
  **fields: Any,
) -> dict[str, Any]:
  """Returns our config of an image tower.

  Args:
    config: its JSON.
    act: `hidden_act` where the JSON leaves it out.
    epsilon: LayerNorms' epsilon where the JSON leaves it out.
    patch_size: patch size where the JSON leaves it out.
    **fields: further fields of `VisionTransformer`.
  """
  dropout = config.get('attention_dropout', 0.0)
  return record.vit(
    {'hidden_act': act, **config, 'attention_probs_dropout_prob': dropout},
    mlp_dim=config.get('intermediate_size', 3072),
    layer_norm_epsilon=config.get('layer_norm_eps', epsilon),
    patch_size=config.get('patch_size', patch_size),
    block={},
    **fields,
  )


def vision_json(model: Json) -> dict[str, Any]:
  """Undoes `vision`."""
  config = record.vit_json(model)
  del config['hidden_dropout_prob']
  return {
    **config,
    'attention_dropout': config.pop('attention_probs_dropout_prob'),
    'intermediate_size': model['transformer']['mlp_dim'],
  }


def text(
  config: Json,
  *,
  act: str,
  epsilon: float,
  vocab_size: int,
  block: Json,
  **fields: Any,
) -> dict[str, Any]:
  """Returns our config of a text tower.

  Args:
    config: its JSON.
    act: `hidden_act` where the JSON leaves it out.
    epsilon: LayerNorms' epsilon where the JSON leaves it out.
    vocab_size: number of token ids where the JSON leaves it out.
    block: further arguments of `Encoder1DBlock`.
    **fields: further fields of `TextTransformer`.
  """
  activation, is_exact = record.activation(config.get('hidden_act', act))
  block = {**block, 'activation': activation}
  encoder: dict[str, Any] = {
    'layer_norm_epsilon': float(config.get('layer_norm_eps', epsilon)),
    'exact_gelu': is_exact,
  }
  if block := {k: v for k, v in block.items() if v != 'gelu'}:
    encoder['block'] = block
  return {
    'width': config.get('hidden_size', 512),
    'num_layers': config.get('num_hidden_layers', 12),
    'mlp_dim': config.get('intermediate_size', 2048),
    'num_heads': config.get('num_attention_heads', 8),
    'vocab_size': config.get('vocab_size', vocab_size),
    'encoder': encoder,
    **fields,
  }


def text_json(model: Json, max_len: int) -> dict[str, Any]:
  """Undoes `text`, for texts of `max_len` tokens."""
  encoder = model.get('encoder', {})
  return {
    'hidden_size': model['width'],
    'num_hidden_layers': model['num_layers'],
    'intermediate_size': model['mlp_dim'],
    'num_attention_heads': model['num_heads'],
    'vocab_size': model['vocab_size'],
    'max_position_embeddings': max_len,
    'layer_norm_eps': encoder.get('layer_norm_epsilon', 1e-6),
    'hidden_act': record.hidden_act(encoder),
    'attention_dropout': 0.0,
  }


def vision_names(
  model: Json, modules: list[tuple[str, str]], **arrays: str
) -> dict[str, str]:
  """Returns {our name: transformers'} of an image tower, without prefixes.

  Args:
    model: our config of the tower.
    modules: further modules of the family.
    **arrays: further arrays of the family.
  """
  return {
    record.POSITIONS: 'embeddings.position_embedding.weight',
    **arrays,
    **torch_layout.array_names(
      [
        ('embedding', 'embeddings.patch_embedding'),
        ('Transformer/encoder_norm', 'post_layernorm'),
        *record.blocks(model, 'encoder.layers.{}', _BLOCK),
        *modules,
      ]
    ),
  }


def text_names(model: Json, head: str) -> dict[str, str]:
  """Returns {our name: transformers'} of a text tower with this head."""
  depth = {'transformer': {'num_layers': model['num_layers']}}
  modules = [
    (ours.replace('Transformer/', 'Encoder_0/'), theirs)
    for ours, theirs in record.blocks(
      depth, 'text_model.encoder.layers.{}', _BLOCK
    )
  ]
  modules += [
    ('Encoder_0/encoder_norm', 'text_model.final_layer_norm'),
    ('head', head),
  ]
  return {
    'Embed_0/embedding': 'text_model.embeddings.token_embedding.weight',
    'pos_embedding': 'text_model.embeddings.position_embedding.weight',
    **torch_layout.array_names(modules),
  }


def prefixed(
  names: dict[str, str],
  ours: str = '',
  theirs: Callable[[str], str] | str = '',
) -> dict[str, str]:
  """Returns names with prefixes; `theirs` may be a function of their name."""
  change = theirs if callable(theirs) else lambda name: f'{theirs}{name}'
  return {f'{ours}{k}': change(v) for k, v in names.items()}
