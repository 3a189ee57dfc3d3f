"""The baseline: simple models on the candidate's features, which a candidate must beat."""
