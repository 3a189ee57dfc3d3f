"""The component `diagnose`."""
