"""Object stores, which hold the bytes of a store: one module for each kind of place."""
