"""Pipelines as YAML to upload: compiled for a platform, held against a policy, and compared."""
