"""The component `reconcile`."""
