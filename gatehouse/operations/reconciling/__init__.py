"""Finds runs whose end was not reported, cleans up after killed processes, and finds late schedules."""
