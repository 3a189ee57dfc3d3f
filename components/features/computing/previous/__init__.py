"""Which earlier feature tables those of a snapshot are added to."""
