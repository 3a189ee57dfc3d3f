"""Registration behind the gate, promotion and rollback, all recorded in the ledger of champions."""
