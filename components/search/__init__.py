"""The component `search`."""
