"""What a metric is, which there are, and how one is measured again on draws of rows."""
