"""Feature tables of a snapshot: computed from the repository's SQL, kept as versions of what was known."""
