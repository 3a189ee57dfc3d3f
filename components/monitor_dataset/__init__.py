"""The component `monitor_dataset`."""
