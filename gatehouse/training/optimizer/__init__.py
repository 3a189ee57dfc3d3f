"""The optimizer, its learning-rate schedule, and clipping."""
