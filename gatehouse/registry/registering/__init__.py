"""Records the gate's verdict in the ledger."""
