"""The age of objects, by which the collector decides, and `touch`, which makes an object young again.

**The rule.** The collector deletes an object only if nothing reaches it, and it is older than `DAYS`. Whoever relies on
an object that is there already touches it first: a writer touches the blobs that it reuses and the inputs of its
artifact, a memo hit touches its results, a reader touches a deprecated artifact. Other artifacts are always reached.

**Why a run loses nothing that it uses.** What the run wrote or touched is too young to be deleted until `DAYS` later,
and before that the run has published manifests and records that reach it. `touch` leaves objects of the last day as
they are, by the clock of this machine. So the run must be shorter than `DAYS` less that day, and less the error of the
machine's clock: six days by default where clocks are right. If the collector is running at the moment of the touch, the
object has a new generation, and the collector deletes only the generation that it saw.

**What a touch costs.** A system call on a local store, two requests on S3 (a copy of the object onto itself) and on
Google Cloud Storage (a rewrite), at most once a day for each object. No bytes travel.
"""

import time
from collections.abc import Iterable

from gatehouse.store.objects.base import ObjectStore, Stat, side_by_side

DAY = 86_400.0
DAYS = 7.0
PIECES = "pieces"
"""The kind of the artifacts that pieces of a stage publish. Nothing is made from them, so only their age keeps them."""
_CLOCK = "gc/clock"


def touch(objects: ObjectStore, keys: Iterable[str]) -> dict[str, Stat | None]:
    """Make those of the objects young that are older than a day.

    Returns the metadata of each from before, or None if it does not exist.
    """
    stats = dict(objects.stats(keys))
    old = [key for key, stat in stats.items() if stat is not None and time.time() - stat.modified > DAY]
    renewed = side_by_side(objects, objects.renew, old)
    return stats | {key: None for key, exists in zip(old, renewed, strict=True) if not exists}


def store_time(objects: ObjectStore) -> float:
    """Seconds since 1970 by the store's own clock, which is read from an object that is written for it."""
    while not (objects.renew(_CLOCK) or objects.put_bytes(_CLOCK, b"")):
        pass  # Another process created it in between.
    stat = objects.stat(_CLOCK)
    return stat.modified if stat else 0.0
