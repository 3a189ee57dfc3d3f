"""A candidate as serving has it: loaded from the store alone, asked as clients ask, tested by the project."""
