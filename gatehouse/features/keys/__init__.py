"""Keys and times that a user gives in a file, to be scored."""
