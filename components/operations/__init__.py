"""How runs ended: told, cleaned up after, and counted. Everything here is read from the records of runs."""
