"""Places outside the store that show the ledger; they are written, and never read for a decision."""
