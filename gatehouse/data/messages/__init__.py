"""What a message of a stream says: its values, typed by JSON or read from text."""
