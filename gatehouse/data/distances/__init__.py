"""How far a distribution has moved: one measure, one file; those of histograms compare counts of the same bins."""
