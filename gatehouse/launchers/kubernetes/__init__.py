"""Trains on a Kubernetes cluster, through one of its training operators."""
