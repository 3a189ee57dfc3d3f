"""How a source is reached: credentials, and archives that are fetched and verified."""
