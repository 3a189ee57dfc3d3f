"""The end of a run: its outcome, the notice of it, and the task that records both."""
