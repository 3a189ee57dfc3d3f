"""Katib-style experiments on Optuna, whose trials are training runs."""
