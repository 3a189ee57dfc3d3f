"""The component `compare_online`."""
