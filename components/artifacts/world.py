"""Where the world enters and leaves: for every task, what it reads and writes besides its parameters.

`compile.py` turns this table into cache, retry, timeout and resource settings, `compile.py --check` holds the compiled
specs against it, and the stage decorator takes from it whether a task is memoised.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Door:
    """One task's dealings with the world.

    Attributes:
        reads: What it reads that its parameters do not name; empty for a pure function.
        writes: What it writes beside its artifacts; empty for a pure function.
        memo: Whether its result may be taken from the stage memo, and its KFP cache entry be used.
        retry_safe: Whether running it twice leaves the same world as running it once.
        why: The reason for these settings, in one sentence.
        cpu, memory: Request and limit of its pod.
        timeout_minutes: After which KFP ends it.
    """

    reads: str
    writes: str
    memo: bool
    retry_safe: bool
    why: str
    cpu: str = "1"
    memory: str = "2G"
    timeout_minutes: int = 30


_PURE = "A pure function of its parameters."

WORLD: dict[str, Door] = {
    "prepare": Door(
        "the store", "", False, True, "Sees whether the configuration is published in this store.", "500m", "512M", 5
    ),
    "snapshot": Door(
        "the source, the record of its deliveries",
        "the record of its deliveries",
        False,
        True,
        "Sees whether the source changed; what it ingests is memoised by content.",
        "2",
        "4G",
    ),
    "ingest": Door("", "", True, True, "A pure function of the source's fingerprint."),
    "validate": Door("", "", True, True, _PURE, "2", "4G"),
    "measure": Door("", "", True, True, _PURE, "2", "4G"),
    "skew": Door("", "", True, True, _PURE, "2", "4G"),
    "alert": Door(
        "",
        "the webhook",
        False,
        True,
        "Posts under an idempotency key, and nothing that this run delivered before.",
        "500m",
        "512M",
        5,
    ),
    "require_contract": Door(
        "", "", False, True, "Ends the run where the verdict says no; costs nothing to repeat.", "500m", "512M", 5
    ),
    "previous_features": Door(
        "earlier feature tables",
        "the record of its choices",
        False,
        True,
        "Sees which feature tables there are; a choice that was made stays.",
        "500m",
        "512M",
        5,
    ),
    "compute_features": Door("", "", True, True, _PURE, "2", "4G"),
    "freshness": Door(
        "the clock, unless the project says as_of",
        "a measurement",
        False,
        True,
        "Feature tables age without any parameter changing; a repeat measures again.",
        "500m",
        "1G",
        10,
    ),
    "retrieve_training_set": Door("", "", True, True, _PURE, "2", "8G"),
    "check_leakage": Door("", "", True, True, _PURE, "2", "8G"),
    "require_no_leakage": Door(
        "", "", False, True, "Ends the run where the verdict says no; costs nothing to repeat.", "500m", "512M", 5
    ),
    "split": Door("", "", True, True, _PURE),
    "fit_transformation": Door("", "", True, True, _PURE, "2", "4G"),
    "tune": Door(
        "", "", True, True, "Trials are memoised one by one, so a retry goes on where it stopped.", "2", "8G", 240
    ),
    "train": Door("", "", True, True, "Resumes from its last checkpoint.", "2", "8G", 240),
    "resolve": Door("the ledger", "", False, True, "Champions change without any parameter changing.", "500m", "1G", 5),
    "champion": Door(
        "the ledger", "", False, True, "Champions change without any parameter changing.", "500m", "1G", 5
    ),
    "fit_baseline": Door("", "", True, True, _PURE),
    "evaluate": Door("", "", True, True, _PURE, "2", "4G"),
    "register": Door(
        "the ledger",
        "the ledger, MLflow",
        False,
        True,
        "Appends to the ledger once; a repeat finds its record.",
        "1",
        "2G",
    ),
    "promote": Door(
        "the ledger",
        "the ledger, MLflow",
        False,
        True,
        "Appends to the ledger once; a repeat finds its record.",
        "1",
        "2G",
    ),
    "materialize": Door(
        "the online store",
        "the online store",
        False,
        True,
        "Writes what the store does not hold yet; a repeat goes on where it stopped.",
        "2",
        "4G",
        60,
    ),
    "require_no_skew": Door(
        "", "", False, True, "Ends the run where the verdict says no; costs nothing to repeat.", "500m", "512M", 5
    ),
    "monitor": Door("", "", True, True, _PURE, "2", "4G"),
}
