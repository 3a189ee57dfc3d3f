"""Executes the decision to retrain: one training per cause, however often and from wherever it is requested."""
