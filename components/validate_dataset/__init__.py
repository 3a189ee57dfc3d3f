"""Validates a Dataset of a KFP pipeline against a contract."""
