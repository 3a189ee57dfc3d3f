"""Computes feature rows from messages: runs the views' queries on micro-batches of a stream, for both stores."""
