"""Before a run: a step compiled for other hardware, what fits, what is missing.

plan           the plan of a config on devices that are not here
compilation    compiles a step without data and devices
memory_search  looks for the batches that fit
hlo            reads the collective operations of a program
tables         the tables of a plan
readiness      checks of a machine, weights and data before a run
"""

# What other packages import.
__all__ = ('plan', 'readiness')
