"""The component `recover`."""
