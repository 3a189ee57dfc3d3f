"""The component `materialize`."""
