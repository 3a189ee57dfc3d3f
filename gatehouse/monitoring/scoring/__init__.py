"""Predictions for rows, by a registered model: many at once, kept as a table; or a few, for a server."""
