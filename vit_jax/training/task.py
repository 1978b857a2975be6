"""What is trained: data, model, stages and evaluation."""

from collections.abc import Callable, Sequence
import dataclasses
from typing import Any

import flax.linen as nn

from vit_jax.data import batching
from vit_jax.evaluation import evaluator
from vit_jax.training import stages as stages_lib


@dataclasses.dataclass(frozen=True)
class Task:
  """Data, model, stages and evaluation.

  Attributes:
    data: both splits.
    model: the module, for the log and its FLOPs.
    stages: the stages of the run, in order.
    initial_params: pretrained weights, or None, to parameters.
    eval_fn: parameters to metrics, including `state.BEST_METRIC`.
    vocabulary: file of the tokeniser, if there are texts.
  """

  data: batching.Data
  model: nn.Module
  stages: Sequence[stages_lib.Stage]
  initial_params: Callable[..., dict[str, Any]]
  eval_fn: evaluator.EvalFn
  vocabulary: str | None = None
