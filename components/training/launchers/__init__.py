"""Where training runs: on this machine, or on a cluster through an operator."""
