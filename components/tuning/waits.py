"""How long a controller waits, and how often it tries a trial again; no trial's result depends on it."""

LOOK_SECONDS = 1.0
"""After which the controller checks stop requests and the budget again."""
TURN_SECONDS = 0.05
"""After which a trial that waits for its turn at a job looks whether it is to stop."""
RETRIES = 2
"""How often a trial is restarted after a failure that may be temporary, such as an eviction."""
