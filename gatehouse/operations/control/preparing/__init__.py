"""The first task of a run."""
