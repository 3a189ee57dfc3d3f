"""Checks that the online store gives the values that a training set was made of."""
