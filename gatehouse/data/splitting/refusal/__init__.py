"""Says why a training set cannot be divided as `split` asks, and what to set."""
