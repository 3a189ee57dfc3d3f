"""The component `score`."""
