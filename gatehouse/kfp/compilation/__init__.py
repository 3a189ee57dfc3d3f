"""Compiles pipelines to YAML for a platform, checks them by a policy, and compares them."""
