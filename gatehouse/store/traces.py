"""Removes traces of an artifact: memos, logs, events of runs and records of deliveries, which may quote data."""

from collections.abc import Mapping, Set
from typing import Any

from gatehouse.store.records import create_record, read_records, remove_record
from gatehouse.store.reference import references_in
from gatehouse.store.store import ArtifactStore

LOGS = "logs"
_QUOTES = ("result", "message")
_DELIVERIES = "sources"
_OF_ROWS = ("state", "tables", "warnings")
"""What the record of a delivery says of its rows: digests, first and last times, what guards found."""


def remove_traces(store: ArtifactStore, erased: Set[str], record: str) -> int:
    """Remove records that may quote erased artifacts.

    A memo that names one of them is deleted. If a run read or made one of them, its log is deleted; its events keep
    times, keys and requests, but neither results nor messages. The record of the delivery of an erased snapshot says
    nothing of its rows any more.

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
            shortened += _shorten(store, key, body, _QUOTES, record)
    for key, body in read_records(objects, list(objects.list(_DELIVERIES))).items():
        if body["snapshot"] in erased:
            shortened += _shorten(store, key, body, _OF_ROWS, record)
    return len(memos) + shortened


def _shorten(store: ArtifactStore, key: str, body: Mapping[str, Any], names: tuple[str, ...], record: str) -> bool:
    """Take fields out of a record, and name the erasure in it; False if it has none of them."""
    if not body.keys() & set(names):
        return False
    remove_record(store.objects, key)
    rest = {name: value for name, value in body.items() if name not in names}
    return create_record(store.objects, key, rest | {"erased": record})
