"""How far a distribution has moved: one measure, one file."""
