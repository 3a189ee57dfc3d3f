"""What a policy would have said of the candidates that a ledger holds."""
