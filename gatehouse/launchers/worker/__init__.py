"""Code that runs in the workers of a job: heartbeats, preemption, and the barrier between two steps."""
