"""A step compiled for other hardware, and what fits into its memory.

compilation    compiles a step for devices that are not here
memory_search  looks for the batches that fit
hlo            reads what devices send each other
tables         the tables that `plan` prints
"""
