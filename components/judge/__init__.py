"""The component `judge`."""
