"""Teams that share one cluster: Kueue's objects from a platform profile."""
