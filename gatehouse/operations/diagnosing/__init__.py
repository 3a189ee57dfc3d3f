"""Checks whether a machine or cluster gives the pipelines what they need."""
