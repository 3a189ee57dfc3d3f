"""The component `integrate`."""
