"""A step compiled for other hardware, and what fits into its memory."""
