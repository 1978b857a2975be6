"""Writes a page about a run, WORKDIR/report.html, which needs no other file.

vit-jax report /tmp/run

Each run leaves one at its end (`config.report`); of a run that goes on, this shows
the newest checkpoint. Test images are looked at once more, for the confusions and
for the best and worst predictions.
"""

from collections.abc import Sequence

from absl import flags

from vit_jax.reporting import report
from vit_jax.runtime import errors


def define_flags() -> None:
  """Defines the flags of `vit-jax report`."""
  flags.DEFINE_string(
    'dataset', None, 'Where the images are, if not where they were.'
  )


def main(argv: Sequence[str]) -> None:
  if len(argv) != 2:
    raise errors.UserError('Give the workdir of one run.')
  try:
    print(report.of_workdir(argv[1], flags.FLAGS.dataset))
  except OSError as e:
    raise errors.UserError(f'{argv[1]}: {e.strerror or e}.') from e
