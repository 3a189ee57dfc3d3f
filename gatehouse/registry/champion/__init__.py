"""Finds the champion and its training data."""
