"""Monitoring of the champion: what changed since it was trained, how much it matters, and whether to retrain."""
