"""The component `collect_log`."""
