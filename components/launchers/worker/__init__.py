"""What runs in the workers of a job: signs of life, preemption, and the barrier between two steps."""
