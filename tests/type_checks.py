"""What checks the annotations of the package while tests run."""

import beartype

# As for mypy, an int will do where a float is wanted.
check = beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))
