"""Feature rows from messages: the views' own queries on micro-batches of a stream, to the online and offline store."""
