"""Where training runs, on this machine or on a cluster, and what runs around the training program."""
