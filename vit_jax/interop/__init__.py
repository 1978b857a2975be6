"""Weights of other libraries, both ways."""
