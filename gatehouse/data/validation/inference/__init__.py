"""Writing a contract from what a snapshot holds."""
