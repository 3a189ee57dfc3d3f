"""The PyTorch training program and the launchers that run it."""
