"""What nobody reported: runs that ended untold, what they left behind, and schedules that are late."""
