"""Object stores: where a store's bytes lie, one file for each kind of place."""
