"""The component `check_leakage`."""
