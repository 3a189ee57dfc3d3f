"""What becomes of a model's quality where features are missing, unknown, out of range or shuffled."""
