"""The component `retrain`."""
