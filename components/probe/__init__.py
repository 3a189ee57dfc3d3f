"""The component `probe`."""
