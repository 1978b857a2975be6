"""One file a `vit-jax` command: flags in, one library call, print."""
