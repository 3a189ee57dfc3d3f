"""Compiles pipelines to YAML for a platform, and checks them by a policy."""
