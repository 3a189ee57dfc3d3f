"""How old feature tables are."""
