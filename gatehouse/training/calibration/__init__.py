"""What makes the probabilities of a model come true, and the threshold of its positive class; travels with it."""
