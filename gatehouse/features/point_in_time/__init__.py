"""The point-in-time join, Feast's offline store built on it, and the retrieval of training sets."""
