"""The component `deploy`."""
