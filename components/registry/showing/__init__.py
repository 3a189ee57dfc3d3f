"""Where the ledger is shown: places outside of the store, which are written and never read back into a decision."""
