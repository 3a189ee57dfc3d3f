"""Which champion a candidate must compare with."""
