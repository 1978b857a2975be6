"""A run: what it starts from, its steps, its state, what it logs."""
