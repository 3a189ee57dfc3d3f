"""Metrics, slices, calibration, champion comparison, verdict."""
