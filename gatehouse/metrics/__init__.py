"""Metrics by family, their curves, and the catalogue that finds them by name."""
