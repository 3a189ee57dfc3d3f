"""Divides a Dataset of a KFP pipeline into train, validation and test."""
