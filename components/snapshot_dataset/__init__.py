"""Takes an immutable snapshot of a Dataset of a KFP pipeline."""
