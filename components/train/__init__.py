"""The component `train`."""
