"""Takes a log of predictions into the store, from wherever it is kept."""
