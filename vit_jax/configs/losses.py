"""Settings of the training loss: classes, their weights, a teacher."""

import re
import types

from vit_jax.configs import labels
from vit_jax.configs import rules

_NUMBERS = re.compile(
  r'(\d*\.)?\d*[1-9]\d*(\.\d*)?(,(\d*\.)?\d*[1-9]\d*(\.\d*)?)*'
)

# A value of `config.class_weights`.
BALANCED = 'balanced'

# How a student learns from its teacher, see `config.distill`.
SOFT, HARD = 'soft', 'hard'


def declare(config: types.SimpleNamespace) -> None:
  """Adds every setting of the loss, with the values that it may have."""
  # Cross-entropy over classes or image-text pairs, 'softmax' or 'sigmoid'; of numbers,
  # in standard deviations of the training images, 'l2' (half the square), 'l1' or
  # 'huber'. None: 'softmax' for one class, 'sigmoid' for several, 'l2' for numbers.
  config.loss = rules.one_of(*labels.every(labels.LOSSES), kind=str)
  # Weight of each class in the training loss. 'balanced': the mean number of images of
  # a class divided by its own number. Or one number a class, such as '1,5,2.5'. If an
  # image may have several classes, the weight applies to those that it has, and
  # 'balanced' is the number of images without a class divided by that with it. Empty: 1.
  config.class_weights = rules.such(
    '', _is_class_weights, "'balanced' or numbers above 0, such as '1,5,2.5'"
  )
  # Power of 1 - p in the focal loss (arXiv:1708.02002), which cares less for what the
  # model knows already. 0: off.
  config.focal_gamma = rules.number(0.0, low=0.0, high=20.0)
  # Share of each target that is spread over all classes.
  config.label_smoothing = rules.number(0.0, low=0.0, high=1.0)
  # Distillation: the model also learns from the logits of a `teacher`, a trained
  # classifier of the same classes: a file, folder, address or name as in `pretrained`.
  # It sees the same augmented images, resized and normalised as it expects. The loss
  # is (1 - `weight`) * the loss of the labels + `weight` * that of the teacher: 'soft'
  # (arXiv:1503.02531) is the divergence from its probabilities, where both logits are
  # divided by `temperature`, times `temperature` squared; 'hard' (arXiv:2012.12877)
  # takes the class it predicts as a label. A distillation token with its own head
  # learns from the teacher alone. Empty: no teacher.
  config.distill = types.SimpleNamespace(
    teacher='',
    loss=rules.one_of(SOFT, HARD),
    weight=rules.number(0.5, low=1e-3, high=1.0),
    temperature=rules.number(3.0, low=0.01, high=1e3),
  )


def _is_class_weights(text: str) -> bool:
  return text in ('', BALANCED) or _NUMBERS.fullmatch(text) is not None
