"""Scores rows with a published model; knows nothing of how it was trained."""
