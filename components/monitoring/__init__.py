"""What moved since the champion was trained, how much it matters, and whether to retrain."""
