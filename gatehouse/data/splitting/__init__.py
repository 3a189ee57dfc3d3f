"""Training set to deterministic, leakage-checked split indices."""
