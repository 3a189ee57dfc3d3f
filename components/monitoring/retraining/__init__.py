"""Acts on the decision to retrain: one training for one cause, however often and from wherever it is asked for."""
