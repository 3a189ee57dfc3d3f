"""The results of the stages of all runs as one table, with totals for people and for Prometheus."""
