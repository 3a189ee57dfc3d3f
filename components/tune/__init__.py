"""The component `tune`."""
