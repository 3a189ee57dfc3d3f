"""The component `skew`."""
