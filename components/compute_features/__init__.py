"""The component `compute_features`."""
