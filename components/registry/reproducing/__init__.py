"""Rebuilds a registered model from its lineage, and says whether it is the same to the bit."""
