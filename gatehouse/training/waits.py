"""How long a training process waits for others; no weight depends on it."""

PREFETCH_SECONDS = 0.01
"""After which the end of an epoch looks again whether the thread that prefetches has ended."""
LAST_SECONDS = 2.0
"""Of a preempted machine's time, kept for what comes after the checkpoint."""
