"""How long a controller waits, and how often it tries a trial again in the same run.

They are in no key: a trial that fails more often is provisional, and the next run begins it again, unless a goal or a
budget has ended the search.
"""

LOOK_SECONDS = 1.0
"""After which the controller checks stop requests and the budget again."""
TURN_SECONDS = 0.05
"""After which a trial that waits for its turn at a job looks whether it is to stop."""
RETRIES = 2
"""How often a run restarts a trial after a failure that may be temporary, such as an eviction."""
