"""The stages and the libraries that they share, one folder each."""
