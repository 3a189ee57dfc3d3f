"""Checks whether a machine or cluster has what the pipelines need."""
