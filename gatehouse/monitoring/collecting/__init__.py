"""Publishes a log of predictions in the store, from wherever the log is kept."""
