"""Model families, one a file, and `get_model` to make one by name.

factory           a model from its config; its parameters and their shapes
vit               Vision Transformer, to be read beside the paper
resnet            the stem of hybrids
mixer             MLP-Mixer
lit               LiT, CLIP, SigLIP: an image tower and a text tower
bert              BERT, a text tower
parts             MLP, LayerScale, learned tokens
pooling           from tokens to features
arithmetic        products and biases in a precision: `Policy`
normalization     softmax and LayerNorm in a precision
layers            dense layers, LayerNorm, patches, heads
attention         attention, by XLA or by cuDNN
blocks            depth: unrolled or scanned, remat, stochastic depth
positions         learned positions, sines and cosines, rotations
losses            losses, one number an example
distillation      the loss of a student with a teacher
lora              LoRA: matrices beside kernels, and their sum
inference         the forward pass without training
capture           tokens of a layer, attention weights
flops             operations of a model, speed and memory of devices
attention_choice  measures which attention is the fastest here
"""

from vit_jax.models.factory import abstract_params
from vit_jax.models.factory import example_inputs
from vit_jax.models.factory import from_config
from vit_jax.models.factory import get_model
from vit_jax.models.factory import init_params
from vit_jax.models.factory import parameter_table
from vit_jax.models.factory import unrolled
from vit_jax.models.lit import LitModel
from vit_jax.models.lit import similarities
from vit_jax.models.mixer import MlpMixer
from vit_jax.models.parts import MlpBlock
from vit_jax.models.positions import AddPositionEmbs
from vit_jax.models.vit import Encoder
from vit_jax.models.vit import Encoder1DBlock
from vit_jax.models.vit import VisionTransformer

# What other packages import.
__all__ = (
  'AddPositionEmbs',
  'Encoder',
  'Encoder1DBlock',
  'LitModel',
  'MlpBlock',
  'MlpMixer',
  'VisionTransformer',
  'abstract_params',
  'arithmetic',
  'attention_choice',
  'blocks',
  'capture',
  'distillation',
  'example_inputs',
  'flops',
  'from_config',
  'get_model',
  'inference',
  'init_params',
  'lit',
  'lora',
  'losses',
  'mixer',
  'parameter_table',
  'parts',
  'positions',
  'resnet',
  'similarities',
  'unrolled',
  'vit',
)
