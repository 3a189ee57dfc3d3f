"""Reads configuration: YAML with positions, durations, times, schedules."""
