"""How good predictions are: one metric, one file, for all tasks."""
