"""`python -m vit_jax COMMAND ...`, the same as `vit-jax COMMAND ...`."""

from vit_jax import command

if __name__ == '__main__':
  command.main()
