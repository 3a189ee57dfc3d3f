"""The tasks that control a run: checks before its first stage, and tasks that end it if a verdict is not `pass`."""
