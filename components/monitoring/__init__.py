"""Drift of inputs, labels and scores, and the decision to retrain."""
