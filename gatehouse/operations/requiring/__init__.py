"""Stages that end a run unless a verdict is `pass`."""
