"""What a candidate is measured beside: models that are fitted on its features, and prepared on their own."""
