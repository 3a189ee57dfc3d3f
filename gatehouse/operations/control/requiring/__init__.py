"""The tasks that end a run which may not go on."""
