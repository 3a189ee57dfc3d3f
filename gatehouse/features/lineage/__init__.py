"""Finds the source columns that each feature comes from."""
