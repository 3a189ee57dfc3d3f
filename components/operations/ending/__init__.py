"""The end of a run: what came of it, and the task that records and tells it."""
