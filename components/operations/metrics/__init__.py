"""What the stages of all runs did, as one table: counted for people, and for Prometheus."""
