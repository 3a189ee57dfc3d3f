"""Curves of a model: one curve, one file, each a function to points of shape (points, columns)."""
