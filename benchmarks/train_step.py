"""Measures one training step: images/s against the FLOPs it costs.

python -m benchmarks.train_step --variant=ViT-B_16 --batch=8,16 --against=official

Prints a table and, with --json=FILE, writes the same numbers. Needs no data: the
images are random, on the device. FLOPs are those of matrix products alone. Where
the peak of the device is unknown, MFU is relative to the speed of a large matrix
product. Peers (official, timm, transformers) run in alternation.
"""

from absl import app

from benchmarks import harness
from benchmarks import programs


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'Unexpected arguments: {argv[1:]}')
  harness.measure(programs.train, harness.cases())


if __name__ == '__main__':
  harness.start()
  harness.define_flags()
  app.run(main)
