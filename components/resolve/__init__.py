"""The component `resolve`."""
