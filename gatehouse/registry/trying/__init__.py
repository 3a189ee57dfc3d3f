"""Applies a policy to the candidates in a ledger, to show what it would have decided."""
