"""The tests, in the tree of what they test."""
