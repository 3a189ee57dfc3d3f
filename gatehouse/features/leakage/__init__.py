"""Checks that a training set holds only what was known at decision time."""
