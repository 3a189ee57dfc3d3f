"""Tasks: what kind of answer a model gives, and all that follows from it; one task, one file."""
