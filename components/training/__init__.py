"""The PyTorch training program."""
