"""The first stage of a run."""
