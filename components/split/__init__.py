"""The component `split`."""
