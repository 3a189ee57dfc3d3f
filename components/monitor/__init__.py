"""The component `monitor`."""
