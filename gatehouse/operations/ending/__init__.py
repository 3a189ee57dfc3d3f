"""The end of a run: its outcome, and the task that records and reports it."""
