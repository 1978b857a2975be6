"""Writes the page about a run, WORKDIR/report.html.

vit-jax report /tmp/run

A run writes its page at its end (`config.report`). While a run is still going, this
shows its newest checkpoint.
"""

from collections.abc import Sequence

from absl import flags

from vit_jax.reporting import report
from vit_jax.runtime import errors


def define_flags() -> None:
  """Defines the flags of `vit-jax report`."""
  flags.DEFINE_string(
    'dataset', None, 'Folder or name of the images; by default that of the run.'
  )


def main(argv: Sequence[str]) -> None:
  if len(argv) != 2:
    raise errors.UserError('Give the workdir of one run.')
  try:
    print(report.of_workdir(argv[1], flags.FLAGS.dataset))
  except OSError as e:
    raise errors.UserError(f'{argv[1]}: {e.strerror or e}.') from e
