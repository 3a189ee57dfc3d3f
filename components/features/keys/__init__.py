"""Rows that a user asks about: keys and times from a file of one's own."""
