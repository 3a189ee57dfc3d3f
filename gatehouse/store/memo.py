"""The stage memo: the results of stages by key, so that nothing is computed twice."""

import logging
from collections.abc import Callable, Collection
from typing import Any

from gatehouse.errors import CorruptArtifactError
from gatehouse.store.age import touch
from gatehouse.store.canonical import digest_of
from gatehouse.store.records import read_record
from gatehouse.store.reference import Reference, references_in
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)


def memo_key(stage: str, code: str, request: dict[str, Any]) -> str:
    """The key of one computation, from a stage's name, its code digest, and the identity of its request."""
    return digest_of({"stage": stage, "code": code, "request": request})


def recall(
    store: ArtifactStore,
    stage: str,
    key: str,
    report: Callable[[str], None] = logger.warning,
    inputs: Collection[Reference] | None = None,
) -> dict[str, Any] | None:
    """The last recorded result under `key`; None if there is none, or if one of its artifacts is damaged.

    Damaged files are put aside, so that the stage can make them again; `report` is called with a sentence about each.
    The artifacts of a result are touched, so that the collector leaves them to whoever uses the result now.
    `inputs` are the references in the request, which `ArtifactStore.intact` needs.
    """
    result = last(store, stage, key, report)
    if result is None:
        return None
    whole = [store.intact(reference, report, inputs=inputs) for reference in references_in(result)]
    if not all(whole):
        return None
    touch(store.objects, [f"{reference}/manifest.json" for reference in references_in(result)])
    return result


def last(
    store: ArtifactStore, stage: str, key: str, report: Callable[[str], None] = logger.warning
) -> dict[str, Any] | None:
    """The last recorded result under `key`, whether or not its artifacts still exist; None if it is unreadable."""
    records = list(store.objects.list(f"memo/{stage}/{key}"))
    try:
        record = read_record(store.objects, records[-1]) if records else None
    except CorruptArtifactError as error:
        report(f"{error} The stage runs again.")
        return None
    return dict(record["result"]) if record else None


def remember(store: ArtifactStore, stage: str, key: str, result: dict[str, Any]) -> bool:
    """Append `result` under `key`; False if another result was recorded before: the stage is not deterministic."""
    before = last(store, stage, key)
    if before != result:
        store.append(f"memo/{stage}/{key}", {"result": result})
    return before is None or before == result
