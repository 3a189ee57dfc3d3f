"""The component `await_approval`."""
