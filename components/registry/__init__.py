"""Registration behind the gate, promotion, rollback: the ledger of champions."""
