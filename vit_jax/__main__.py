"""`python -m vit_jax COMMAND ...`, the same as `vit-jax COMMAND ...`."""

from vit_jax.commands import dispatch

if __name__ == '__main__':
  dispatch.main()
