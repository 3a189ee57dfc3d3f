"""Compiles pipelines for Kubeflow Pipelines, submits and schedules them, and runs them on this machine."""
