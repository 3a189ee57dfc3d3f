"""The page of an experiment, published or under way."""
