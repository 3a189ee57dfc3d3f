"""The neural networks that can be trained, and the settings of each."""
