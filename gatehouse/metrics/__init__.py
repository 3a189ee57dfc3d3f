"""Metrics: one metric, one file of its name; what a metric is stands in `catalogue`."""
