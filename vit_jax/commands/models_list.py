"""Lists the public weights that `--config.pretrained=NAME` takes.

vit-jax models_list [PART OF A NAME]
"""

from collections.abc import Sequence
import dataclasses
import json

from absl import flags

from vit_jax.configs import registry
from vit_jax.runtime import errors


def table(entries: Sequence[registry.Entry]) -> str:
  """Returns a line for each entry, under a heading."""
  rows = [('name', 'model', 'px', 'MiB', 'trained on', 'head', 'top-1', 'mean')]
  for e in entries:
    size = f'{e.size_mib:.0f}' if e.size_mib else '-'
    top1 = f'{e.top1:.2%} ({e.top1_source})' if e.top1 else '-'
    px, head = str(e.resolution or '-'), e.head or '?'
    rows.append((e.name, e.model, px, size, e.dataset, head, top1, f'{e.mean}'))
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  lines = [
    '  '.join(x.ljust(w) for x, w in zip(row, widths, strict=True)).rstrip()
    for row in rows
  ]
  return '\n'.join(lines)


def define_flags() -> None:
  """Defines the flags of `vit-jax models_list`."""
  flags.DEFINE_bool('json', False, 'Print everything known, as JSON.')


def main(argv: Sequence[str]) -> None:
  if len(argv) > 2:
    raise errors.UserError(
      f'Give one part of a name, not {len(argv) - 1}: {" ".join(argv[1:])}.'
    )
  part = argv[1] if len(argv) > 1 else ''
  found = [
    entry
    for entry in registry.entries().values()
    if part.lower() in entry.name.lower()
  ]
  if not found:
    raise errors.UserError(f'No name has {part!r} in it.')
  if flags.FLAGS.json:
    print(json.dumps([dataclasses.asdict(e) for e in found], indent=2))
    return
  print(table(found))
  print(
    '\nhead: zero is all zeros, good to fine-tune from but not to predict with;'
    ' ? is not known. top-1: on ImageNet, as published.'
  )
