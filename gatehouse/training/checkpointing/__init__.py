"""Checkpoints of an unfinished training run: copied between two steps, written beside the loop, never half."""
