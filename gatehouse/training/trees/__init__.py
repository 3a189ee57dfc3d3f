"""Gradient-boosted trees: their settings, and the boosting loop."""
