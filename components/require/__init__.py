"""The component `require`."""
