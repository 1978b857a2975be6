"""Measures the forward pass: images/s against the FLOPs it costs.

python -m benchmarks.inference --variant=ViT-B_16 --batch=1,8 --against=official

Otherwise it equals `benchmarks.train_step`.
"""

from absl import app

from benchmarks import harness
from benchmarks import programs


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'Unexpected arguments: {argv[1:]}')
  harness.measure(programs.inference, harness.cases())


if __name__ == '__main__':
  harness.start()
  harness.define_flags()
  app.run(main)
