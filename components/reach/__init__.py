"""The component `reach`."""
