"""Before a run: a step compiled for other hardware, what fits, what is missing.

compilation    compiles a step for devices that are not here
memory_search  looks for the batches that fit
hlo            reads what devices send each other
tables         the tables that `plan` prints
readiness      checks of a machine, weights and data before a run
"""
