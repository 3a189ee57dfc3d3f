"""Training-serving skew: logged features against those that a model was trained on."""
