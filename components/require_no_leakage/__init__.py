"""The component `require_no_leakage`."""
