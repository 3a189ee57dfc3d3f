"""The rows to score: decisions with their features, labels left out."""
