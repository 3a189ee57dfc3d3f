"""The table of all runs and stages, with totals for people and for Prometheus."""
