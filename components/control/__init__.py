"""The tasks that steer a run: what it checks before its first stage, and what ends it where a verdict says no."""
