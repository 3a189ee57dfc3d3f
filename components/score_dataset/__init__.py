"""The component `score_dataset`."""
