"""The training loop of neural networks, and what it composes."""
