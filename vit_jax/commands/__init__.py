"""One file a `vit-jax` command: flags in, one library call, print.

Besides:
  dispatch         finds the command; completion for shells
  cli              runs a command; one clear line for a mistake
  predictor_flags  flags that name a model
  output           predictions as a table, JSON or CSV
"""
