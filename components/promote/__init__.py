"""The component `promote`."""
