"""The component `rollback`."""
