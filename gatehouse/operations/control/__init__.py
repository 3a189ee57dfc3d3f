"""Checks of what a run needs before it starts, and tasks that end it if a verdict is not `pass`."""
