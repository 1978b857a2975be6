"""The parts of a plan, as Markdown."""

from collections.abc import Sequence
import dataclasses
from typing import Any

import jax

from vit_jax.configs import spec
from vit_jax.planning import compilation
from vit_jax.planning import memory_search
from vit_jax.runtime import sharding
from vit_jax.training import out_of_memory
from vit_jax.training import stages
from vit_jax.training import state as state_lib

_MAX_ROWS = 8


def memory(program: compilation.Program, limit: int | None) -> str:
  """Returns a table of the memory of a device; `limit` is in bytes."""
  of = f' of {_size(limit)}' if limit else ''
  rows = [
    ('parameters', _size(program.parameters)),
    ('optimizer', _size(program.optimizer)),
  ]
  if program.average:
    rows.append(('moving average', _size(program.average)))
  if program.teacher:
    rows.append(('teacher', _size(program.teacher)))
  if program.fits:
    peak = program.peak or 0
    mark = ': DOES NOT FIT' if limit and peak > limit else ', at most'
    rows += [
      ('activations, gradients', _size(program.temporaries)),
      (f'in all{mark}', _size(peak) + of),
    ]
  else:
    needs = f'at least {_size(program.peak)}' if program.peak else 'too much'
    rows.append(('in all: DOES NOT FIT', needs + of))
  return _table(('on each device', ''), rows)


def state(like: state_lib.TrainState, mesh: jax.sharding.Mesh) -> str:
  """Returns a table of the state on a device, for each possible `mesh.fsdp`."""
  count, rows = sharding.parts(mesh), []
  fsdp = [n for n in range(1, count + 1) if count % n == 0]
  for n in sorted({*fsdp[:_MAX_ROWS], mesh.shape['fsdp']}):
    sizes = (count // n, n, mesh.shape['model'])
    other = jax.sharding.AbstractMesh(sizes, mesh.axis_names)
    placed = stages.place(other, like)
    mark = ' (this)' if n == mesh.shape['fsdp'] else ''
    rows.append(
      (
        f'{n}{mark}',
        _size(compilation.device_bytes(placed.params)),
        _size(compilation.device_bytes(placed.opt_state)),
      )
    )
  return _table(('mesh.fsdp', 'parameters', 'optimizer'), rows)


def work(
  program: compilation.Program,
  num_devices: int,
  image_flops: float,
  batch: int,
  peak: float | None,
) -> str:
  """Returns a sentence on the FLOPs of a step.

  `image_flops` are those of training on one image, without `remat`; `peak` is the
  FLOP/s of a device, None if unknown.
  """
  text = (
    f'{program.flops / 1e12:.4g} TFLOP a step in matrix products,'
    f' {program.flops / num_devices / 1e12:.4g} on each device; three forward'
    f' passes of the model are {image_flops * batch / 1e12:.4g} in all.'
  )
  if peak:
    seconds = program.flops / num_devices / peak
    text += (
      f' At the peak of {peak / 1e12:.4g} TFLOP/s that is {1e3 * seconds:.3g} ms,'
      f' {batch / seconds:,.0f} images/s.'
    )
  return text


def collectives(program: compilation.Program) -> str:
  """Returns a table of the collective operations of a step."""
  rows = [
    (kind, str(c.count), _size(c.bytes))
    for kind, c in program.collectives.items()
  ]
  if not rows:
    return 'Collectives: none.' if program.fits else ''
  return _table(('collectives of a step', 'count', 'whole arrays'), rows)


def search(
  found: memory_search.Search,
  setting: memory_search.Setting,
  model: Any,
) -> str:
  """Returns the settings that fit, one line each; compiles to find them.

  `model`, a config, decides what can be tried: one with texts, whose training is
  contrastive, cannot change `accum_steps`, and one without blocks has no `remat`.
  """
  remats, contrastive = out_of_memory.remats(model), spec.has_texts(model)
  largest = found.largest_batch(setting.accum_steps, setting.remat)
  answers = {'Largest batch': largest}
  if not contrastive:
    fewest = found.fewest_parts(setting.batch, setting.remat)
    answers['Fewest accum_steps'] = fewest
  if not found.fits(setting):
    stronger = remats[remats.index(setting.remat) + 1 :]
    settings = (dataclasses.replace(setting, remat=name) for name in stronger)
    if stronger:
      answers['Least remat'] = next(filter(found.fits, settings), None)
  if not any(answers.values()):
    full = remats[-1]
    if contrastive:
      answers = {
        'Largest batch': found.largest_batch(setting.accum_steps, full)
      }
    else:
      answers = {'Fewest accum_steps': found.fewest_parts(setting.batch, full)}
  if not any(answers.values()):
    return (
      'Nothing fits, not even one image per device. Try a larger mesh.fsdp (see'
      ' above), more or larger devices, or optim_dtype=bfloat16.'
    )
  return '\n'.join(_found(name, s, found) for name, s in answers.items())


def _found(
  name: str, setting: memory_search.Setting | None, found: memory_search.Search
) -> str:
  if setting is None:
    return f'{name} that fits: none.'
  peak = _size(found.programs[setting].peak or 0)
  return f'{name} that fits: {setting}; {peak} of {_size(found.limit)}.'


def _size(number: int) -> str:
  exponent = min(max(number.bit_length() - 1, 0) // 10, 3)
  unit = ('bytes', 'KiB', 'MiB', 'GiB')[exponent]
  return f'{number / 2 ** (10 * exponent):.4g} {unit}'


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
  lines = [head, ['---'] * len(head), *rows]
  return '\n'.join(f'| {" | ".join(line)} |' for line in lines)
