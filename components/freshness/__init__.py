"""The component `freshness`."""
