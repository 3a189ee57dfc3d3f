"""Rebuilds a registered model from its lineage, and checks whether the result is identical to the bit."""
