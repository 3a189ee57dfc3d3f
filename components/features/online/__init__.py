"""Online stores: feature rows by key, how they get there, and whether they are what was trained on."""
