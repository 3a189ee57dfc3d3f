"""Reads configuration files: YAML with positions, durations, schedules."""
