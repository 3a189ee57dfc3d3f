"""Whether the online store gives what a training set was made of."""
