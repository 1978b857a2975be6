"""The official command line; `vit-jax train` is the same.

python -m vit_jax.main --config=configs/digits.py --workdir=/tmp/digits
"""

import sys

if __name__ == '__main__':
  from vit_jax.runtime import exits

  sys.argv[0] = 'vit_jax.main'
  exits.on_interrupt()  # Ctrl-C would break the imports, which take seconds.

  from vit_jax.commands import dispatch

  dispatch.run('train', sys.argv[1:], program='vit_jax.main')
