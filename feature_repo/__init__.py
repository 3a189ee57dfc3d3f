"""The Feast repository of the example project."""
