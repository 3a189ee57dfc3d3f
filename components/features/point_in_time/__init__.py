"""The point-in-time join, Feast's offline store on it, and the training sets that it gives."""
