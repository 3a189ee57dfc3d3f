"""The component `evaluate_live`."""
