"""Online stores: feature rows by key, how they are written, and whether they equal the offline values."""
