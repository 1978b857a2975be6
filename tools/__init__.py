"""Tools of maintainers, run from a clone: `python -m tools.NAME`."""
