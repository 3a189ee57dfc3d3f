"""What the gate's verdict does to the ledger."""
