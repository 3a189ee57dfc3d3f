"""From which source columns each feature comes."""
