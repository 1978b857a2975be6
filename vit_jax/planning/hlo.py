"""What a compiled program moves, in memory and between devices, read from its HLO text."""

from collections.abc import Iterator
import dataclasses
import math
import re

_KINDS = (
  'all-gather',
  'all-reduce',
  'all-to-all',
  'collective-broadcast',
  'collective-permute',
  'ragged-all-to-all',
  'reduce-scatter',
)

_HEADER = re.compile(r'^(ENTRY )?%?([\w.-]+) .*\{$')
_TYPE = re.compile(r'\b(?:[a-z]+(\d+)\w*|pred)\[([\d,]*)\]')
_INSTRUCTION = re.compile(r'^\s+(?:ROOT )?%?([\w.-]+) = (.*)$')
_COLLECTIVE = re.compile(rf'^(.*?) ({"|".join(_KINDS)})(-start)?\(([^()]*)\)')
_RESULT = re.compile(r'\([^()]*\)|\S+')
_OPERATION = re.compile(rf'^({_RESULT.pattern}) ([\w-]+)\(([^()]*)\)')
_TARGET = re.compile(r'custom_call_target="([^"]+)"')
_WITHOUT_BYTES = (
  'bitcast',
  'constant',
  'get-tuple-element',
  'parameter',
  'tuple',
  'while',
)
_CHANNEL = re.compile(r'channel_id=(\d+)')
_CALLED = re.compile(
  r'(?:body|condition|calls|to_apply|(?:true|false)_computation)=%?([\w.-]+)'
  r'|branch_computations=\{([^}]*)\}'
)
_CONDITION = re.compile(r'condition=%?([\w.-]+)')
_LIMIT = re.compile(r' s32\[\]\S* constant\((\d+)\)')
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')

# TPU programs have no reduce-scatter, but a fusion of this name.
_FUSED_REDUCE_SCATTER = 'all-reduce-scatter'


@dataclasses.dataclass
class Moved:
  """How often a program runs one kind of operation, and the bytes of its arrays in all."""

  count: int = 0
  bytes: int = 0


def collectives(text: str) -> dict[str, Moved]:
  """Returns the collective operations of a program, by kind.

  Arrays count as a whole, not as the part that is gathered, reduced or scattered.
  Operations in a loop count as often as it runs, or once if the compiler does not
  know its length. `text` comes from `jax.stages.Compiled.as_text()`.
  """
  computations, entry = _computations(text)
  found: dict[str, Moved] = {}
  seen = set()
  todo = [(entry, 1)]
  while todo:
    computation, times = todo.pop()
    types = dict(_instructions(computations[computation]))
    for instruction, definition in types.items():
      repeats = times * _trips(definition, computations)
      todo += [(name, repeats) for name in _called(definition)]
      match = _COLLECTIVE.match(definition)
      if not match:
        continue
      # TPU programs name the parts of an asynchronous one by its channel.
      channel = _CHANNEL.search(definition)
      identity = channel[1] if channel else f'{computation}/{instruction}'
      if identity in seen:
        continue
      seen.add(identity)
      kind = match[2]
      if computation.startswith(_FUSED_REDUCE_SCATTER):
        kind = 'reduce-scatter'
      collective = found.setdefault(kind, Moved())
      collective.count += times
      collective.bytes += times * _whole_bytes(match, types)
  return dict(sorted(found.items()))


def moved(text: str) -> dict[str, Moved]:
  """Returns what the instructions outside of loops read and write, by kind.

  A kind is the target of a custom call, or the name of a fusion or another instruction
  without its number. Instructions inside of a fusion do not count, neither do loops.
  """
  computations, entry = _computations(text)
  types = dict(_instructions(computations[entry]))
  found: dict[str, Moved] = {}
  for name, definition in types.items():
    match = _OPERATION.match(definition)
    if not match or match[2] in _WITHOUT_BYTES or match[2].endswith('-done'):
      continue
    result, _, operands = match.groups()
    target = _TARGET.search(definition)
    kind = target[1] if target else re.sub(r'[._]\d+', '', name)
    row = found.setdefault(kind, Moved())
    row.count += 1
    row.bytes += _bytes(result) + _operand_bytes(operands, types)
  return found


def _computations(text: str) -> tuple[dict[str, list[str]], str]:
  computations: dict[str, list[str]] = {}
  entry, lines = '', []
  for line in text.splitlines():
    if match := _HEADER.match(line):
      lines = computations[match[2]] = []
      entry = match[2] if match[1] else entry
    else:
      lines.append(line)
  return computations, entry


def _instructions(lines: list[str]) -> Iterator[tuple[str, str]]:
  for line in lines:
    if match := _INSTRUCTION.match(line):
      yield match[1], match[2]


def _called(definition: str) -> Iterator[str]:
  for one, several in _CALLED.findall(definition):
    yield from [one] if one else re.findall(r'[\w.-]+', several)


def _trips(definition: str, computations: dict[str, list[str]]) -> int:
  """Returns how often an instruction runs what it calls."""
  condition = _CONDITION.search(definition)
  if not condition:
    return 1
  if match := _TRIPS.search(definition):
    return int(match[1])
  # TPU programs do not say it, but count up from 0 to a constant.
  limits = _LIMIT.findall('\n'.join(computations[condition[1]]))
  return int(limits[0]) if len(limits) == 1 else 1


def _whole_bytes(match: re.Match[str], types: dict[str, str]) -> int:
  result, kind, start, operands = match.groups()
  parts = _operand_bytes(operands, types)
  if kind != 'all-gather':
    return parts
  return _bytes(result) - (parts if start else 0)


def _operand_bytes(operands: str, types: dict[str, str]) -> int:
  names = [name.split('%')[-1].strip() for name in operands.split(',')]
  definitions = [types[name] for name in names if name in types]
  return sum(_bytes(_RESULT.findall(d)[0]) for d in definitions)


def _bytes(types: str) -> int:
  total = 0
  for bits, shape in _TYPE.findall(types):  # No bits: booleans of a byte.
    size = math.prod(int(n) for n in shape.split(',') if n)
    total += math.ceil(size * int(bits or 8) / 8)
  return total
