"""Weights in every format: find them, read them, adapt them, write them."""
