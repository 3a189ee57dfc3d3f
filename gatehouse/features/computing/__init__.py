"""Computes the feature tables of a snapshot from the repository's SQL, and keeps versions of what was known."""
