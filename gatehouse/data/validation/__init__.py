"""Snapshot against contract and baseline: statistics, anomalies, verdict."""
