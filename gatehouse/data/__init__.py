"""Raw data: sources, snapshots, contracts, statistics, distances and splits."""
