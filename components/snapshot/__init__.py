"""The component `snapshot`."""
