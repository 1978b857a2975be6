"""One file per `vit-jax` command: flags in, one library call, print.

Shared by the commands:
  dispatch         finds the command; completion for shells
  cli              runs a command; one clear line for a mistake
  none_flags       `--config.NAME=None`, which ml_collections does not parse
  setting_flags    flags that stand for settings, in messages
  setting_values   settings and their values, for help and completion
  predictor_flags  flags that name a model
  dataset_flags    flags that name labelled images
  output           predictions as a table, JSON or CSV
"""

# What other packages import.
__all__ = ('dispatch',)
