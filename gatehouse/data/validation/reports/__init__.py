"""Pieces of the page about a validation."""
