"""Tells a webhook of verdicts."""
