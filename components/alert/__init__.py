"""The component `alert`."""
