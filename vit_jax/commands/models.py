"""Lists the released weights that --model and --config.pretrained take.

vit-jax models [PART OF A NAME]
"""

from collections.abc import Sequence
import dataclasses
import json

from absl import flags

from vit_jax.configs import registry
from vit_jax.runtime import errors


def define_flags() -> None:
  """Defines the flags of `vit-jax models`."""
  flags.DEFINE_bool('json', False, 'Print everything known, as JSON.')


def main(argv: Sequence[str]) -> None:
  if len(argv) > 2:
    raise errors.UserError(
      f'Give one part of a name, not {len(argv) - 1}: {" ".join(argv[1:])}.'
    )
  part = argv[1] if len(argv) > 1 else ''
  entries = registry.entries().values()
  found = [e for e in entries if part.lower() in e.name.lower()]
  if not found:
    raise errors.UserError(f'No name has {part!r} in it.')
  if flags.FLAGS.json:
    print(json.dumps([dataclasses.asdict(e) for e in found], indent=2))
    return
  print(registry.table(found))
  print(
    '\ngated: an account on huggingface.co must accept the licence, and HF_TOKEN be'
    ' set. head: zero is all zeros, good to fine-tune from but not to predict with;'
    ' ? is not known. top-1: on ImageNet, as published.'
  )
