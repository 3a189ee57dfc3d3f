"""Checkpoints of an unfinished training run: staged in microseconds a megabyte, written beside the loop, never half."""
