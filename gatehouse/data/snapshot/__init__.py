"""Raw source to immutable dataset snapshots."""
