"""A project: its configuration files and platforms."""
