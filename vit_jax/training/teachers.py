"""The teacher of a run: a trained classifier whose logits its model learns from."""

from collections.abc import Callable, Mapping
import dataclasses
import functools
import hashlib
from typing import Any

from absl import logging
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
import ml_collections
import numpy as np

from vit_jax.configs import labels as labels_lib
from vit_jax.data import batching
from vit_jax.data import class_names
from vit_jax.evaluation import multilabel
from vit_jax.models import distillation
from vit_jax.models import flops
from vit_jax.models import inference
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import sharding
from vit_jax.runtime import workdir as workdir_lib
from vit_jax.training import resolve
from vit_jax.weights import record as weights_lib

Logits = Float[Array, 'B K']
Reader = Callable[[str, str], weights_lib.Weights]

_SETTING = 'config.distill.teacher'


@dataclasses.dataclass(frozen=True, eq=False)
class Teacher:
  """A trained model of the classes of a run.

  Its weights are read when they are first needed: an evaluation needs none.

  Attributes:
    config: settings of the run.
    data: its splits.
    mesh: its devices.
    read: returns the weights that `config.distill.teacher` names, by the name and
      `config.pretrained_dir`.
  """

  config: ml_collections.ConfigDict
  data: batching.Data
  mesh: jax.sharding.Mesh
  read: Reader = resolve.read_weights

  @functools.cached_property
  def weights(self) -> weights_lib.Weights:
    """The weights; raises `errors.UserError` if they cannot teach the classes."""
    name = self.config.distill.teacher
    try:
      weights = self.read(name, self.config.pretrained_dir)
      weights_lib.check_vision(weights)
      weights_lib.check_can_predict(weights)
    except errors.UserError as e:
      raise errors.UserError(f'{_SETTING} is {name!r}: {e}') from e
    _check_fit(weights, self.config, self.data)
    logging.info('The teacher is %s, %s.', name, weights_lib.describe(weights))
    return weights

  def require(self) -> None:
    """Reads the weights, which all hosts must do together."""
    _ = self.weights

  @functools.cached_property
  def _params(self) -> dict[str, Any]:
    return inference.cast_weights(dict(self.weights.params), self.config.dtype)

  @functools.cached_property
  def _places(self) -> list[int]:
    """The place of each class of the run among the teacher's."""
    wanted, known = class_names.comparable(
      self.data.class_names, self.weights.class_names
    )
    if set(wanted) <= set(known):
      return [known.index(name) for name in wanted]
    return list(range(len(wanted)))

  @property
  def like(self) -> Any:
    """Shapes, dtypes and shardings of the parameters."""
    shapes = jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), self._params
    )
    return sharding.place(self.mesh, shapes)

  def put(self) -> Any:
    """Returns the parameters on the devices, split as those of a model are."""
    return jax.device_put(
      self._params, jax.tree.map(lambda x: x.sharding, self.like)
    )

  def logits(self, params: Any, images: Float[Array, 'B H W C']) -> Logits:
    """Returns logits of the classes of the run, for its loss.

    `images` are the student's input.
    """
    weights = self.weights
    model = {**weights.known_model(), 'dtype': self.config.dtype}
    module = weights_lib.module_of(model, len(weights.class_names))
    seen = self.data.preprocess.for_model(images, weights.preprocessing)
    logits = distillation.as_logits_of(
      self.config.loss, inference.apply(module, params, seen), weights.loss
    )
    return logits[:, np.array(self._places)]

  def flops(self) -> float:
    """Returns the FLOPs of its forward pass for one image."""
    shape = self.weights.input_shape()
    return flops.forward_flops(self.weights.module(), shape)

  def decide(self, logits: Logits) -> Array:
    """Returns what the teacher predicts, as labels."""
    if self.config.task == labels_lib.MULTICLASS:
      return jnp.argmax(logits, axis=-1)
    limits = np.array(multilabel.thresholds(self.weights))[self._places]
    return (jax.nn.sigmoid(logits) >= limits).astype(jnp.float32)

  def facts(self) -> dict[str, Any]:
    """Returns what identifies the teacher: its name and a hash of its parameters."""
    return _facts(self.config.distill.teacher, self.weights)


def _facts(name: str, weights: weights_lib.Weights) -> dict[str, Any]:
  sha = hashlib.sha256()
  for key, x in sorted(weights_lib.flatten(weights.params).items()):
    sha.update(key.encode())
    sha.update(np.ascontiguousarray(x).data)
  return {
    'teacher': name,
    'model': weights_lib.describe(weights),
    'sha256': sha.hexdigest(),
  }


def of_config(
  config: ml_collections.ConfigDict,
  data: batching.Data,
  mesh: jax.sharding.Mesh,
  read: Reader = resolve.read_weights,
) -> Teacher | None:
  """Returns the teacher of a run, if it has one; arguments are its attributes."""
  return Teacher(config, data, mesh, read) if config.distill.teacher else None


def _check_fit(
  weights: weights_lib.Weights,
  config: ml_collections.ConfigDict,
  data: batching.Data,
) -> None:
  """Refuses a teacher of another task, of other classes or of other channels."""
  what = f'{_SETTING} is {config.distill.teacher!r}, which'
  if weights.task != config.task:
    raise errors.UserError(
      f'{what} was trained for the task {weights.task}, but config.task is'
      f' {config.task}. Choose a teacher of this task.'
    )
  channels = weights.preprocessing.channels
  if channels != data.preprocessing.channels:
    raise errors.UserError(
      f'{what} takes images of {channels} channels, but the images have'
      f' {data.preprocessing.channels}. Set config.pp.channels={channels}, or choose'
      f' another teacher.'
    )
  wanted, known = class_names.comparable(data.class_names, weights.class_names)
  if set(wanted) <= set(known):
    if wanted != known:
      logging.info(
        'The teacher knows all %d classes, among %d: they are found by name.',
        len(wanted),
        len(known),
      )
    return
  if len(known) != len(wanted):
    missing = next(name for name in wanted if name not in known)
    raise errors.UserError(
      f'{what} has {len(known)} classes ({known[0]!r}, ...), but the images have'
      f' {len(wanted)}, and {missing!r} is not one of them. Fine-tune the teacher on'
      f' these images first, then name its workdir.'
    )
  logging.warning(
    '%s has other names for its %d classes: %r is taken as %r, and so on in order.'
    ' Make sure that the order is right.',
    what.removesuffix(', which'),
    len(known),
    known[0],
    wanted[0],
  )


def check(
  workdir: workdir_lib.Workdir, teacher: Teacher | None, *, resumed: bool
) -> None:
  """Compares the teacher of a resumed run with the one it began with, and records it.

  Raises:
    errors.UserError: if it is another one.
  """
  if teacher:
    teacher.require()
  if jax.process_index():
    return
  now = teacher.facts() if teacher else {}
  before = files.read_json(workdir.teacher) if resumed else now
  _refuse_change(before, now)
  if now or workdir.teacher.is_file():
    files.write_json(now, workdir.teacher)


def check_begun(
  workdir: workdir_lib.Workdir,
  config: ml_collections.ConfigDict,
  read: Reader = resolve.read_weights,
) -> None:
  """Raises `errors.UserError` if the teacher of a begun run is another one now."""
  if before := files.read_json(workdir.teacher):
    name = config.distill.teacher
    _refuse_change(before, _facts(name, read(name, config.pretrained_dir)))


def _refuse_change(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
  if before.get('sha256') != now.get('sha256'):
    old, new = (
      f'{x["teacher"]} ({x["sha256"]:.8})' if x else 'none'
      for x in (before, now)
    )
    raise errors.UserError(
      f'The teacher has changed since this run began: {old} then, {new} now. Set'
      f' {_SETTING} to the old one, or choose another workdir.'
    )
