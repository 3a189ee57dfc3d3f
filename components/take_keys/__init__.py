"""The component `take_keys`."""
