"""Deploys a model: the objects of its predictor in a cluster, and whether they answer."""
