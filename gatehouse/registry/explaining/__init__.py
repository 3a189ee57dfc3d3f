"""Explains a model: its origin, its makers and reasons, and how two models differ."""
