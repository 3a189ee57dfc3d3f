"""Handles runs whose end was not reported, leftovers of killed processes, and late schedules."""
