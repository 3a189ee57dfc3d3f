"""Removes traces of an artifact: memos, events and logs of runs, whose reasons and messages may quote data."""

from collections.abc import Mapping, Set
from typing import Any

from gatehouse.components.artifacts.records import create_record, read_records, remove_record
from gatehouse.components.artifacts.reference import references_in
from gatehouse.components.artifacts.store import ArtifactStore

LOGS = "logs"
_QUOTES = ("result", "message")


def remove_traces(store: ArtifactStore, erased: Set[str], record: str) -> int:
    """Remove records that may quote erased artifacts.

    A memo that names one of them is deleted. If a run read or made one of them, its log is deleted; its events keep
    times, keys and requests, but neither results nor messages.

    Args:
        store: The artifact store.
        erased: Identities of the artifacts.
        record: The key of the erasure, which is written to the events.

    Returns:
        How many records were removed or shortened.
    """
    objects = store.objects

    def named(bodies: Mapping[str, Any]) -> bool:
        return any(str(reference) in erased for reference in references_in(bodies))

    memos = [key for key, body in read_records(objects, list(objects.list("memo"))).items() if named(body)]
    for key in memos:
        remove_record(objects, key)
    shortened = 0
    for run in list(objects.folders("runs")):
        events = read_records(objects, list(objects.list(f"runs/{run}")))
        if not named(events):
            continue
        (store.local_folder / LOGS / f"{run}.log").unlink(missing_ok=True)
        for key, body in events.items():
            if body.keys() & set(_QUOTES):
                remove_record(objects, key)
                rest = {name: value for name, value in body.items() if name not in _QUOTES}
                shortened += create_record(objects, key, rest | {"erased": record})
    return len(memos) + shortened
