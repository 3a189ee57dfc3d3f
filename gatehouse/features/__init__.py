"""Feature computation, point-in-time retrieval through Feast, materialization."""
