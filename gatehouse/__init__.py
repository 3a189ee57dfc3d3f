"""Kubeflow Pipelines components that take a model from raw events to production."""

__version__ = "0.1.0"
