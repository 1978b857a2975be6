"""`python -m vit_jax COMMAND ...`, the same as `vit-jax COMMAND ...`."""

import sys

if __name__ == '__main__':
  from vit_jax.runtime import exits

  sys.argv[0] = 'vit-jax'
  exits.on_interrupt()  # Ctrl-C would break the imports, which take seconds.

  from vit_jax.commands import dispatch

  dispatch.main()
