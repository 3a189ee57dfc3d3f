"""The component `champion`."""
