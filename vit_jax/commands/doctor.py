"""Checks devices, versions, room, weights and data, and trains for two steps.

vit-jax doctor [--model=NAME_OR_PATH] [--dataset=NAME_OR_PATH]

Prints a line for each check and, where it fails, what to do. Exits with 1 if a check
fails.
"""

from collections.abc import Iterable, Sequence
import sys

from absl import flags

from vit_jax.commands import cli
from vit_jax.commands import setting_flags
from vit_jax.planning import readiness


def show(findings: Iterable[readiness.Finding]) -> int:
  """Prints findings as they come; returns how many checks failed."""
  failed = 0
  for finding in findings:
    text, advice = map(setting_flags.named, (finding.text, finding.advice))
    print(f'{finding.status:8}{finding.what:12}{text}', flush=True)
    if finding.status != readiness.OK and advice:
      print(f'{"":20}Try: {advice}')
    failed += finding.status == readiness.FAILED
  return failed


def define_flags() -> None:
  """Defines the flags of `vit-jax doctor`."""
  flags.DEFINE_string('model', None, 'Weights to read.')
  flags.DEFINE_string('dataset', None, 'Images to read.')


def main(argv: Sequence[str]) -> None:
  cli.refuse_words(argv)
  options = flags.FLAGS
  checks = readiness.checks(options.model, options.dataset)
  if show(readiness.examine(checks)):
    sys.exit(1)
  print('Ready.')
