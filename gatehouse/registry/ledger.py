"""The promotion ledger: numbered records that are created only once and decide which version is champion.

A record is `<store>/registry/<model>/ledger/<n>.json`, n from 1 without gaps. It is decided on the state after all
earlier records, and created under the next number; if another writer took that number first, it is decided again. So
two writers never contradict each other, and a killed writer leaves no partial record.
"""

import json
import os
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from gatehouse.registry.state import LedgerError, Record, State, fold
from gatehouse.store.canonical import canonical_json, digest_of
from gatehouse.store.objects.base import side_by_side
from gatehouse.store.records import author
from gatehouse.store.run import RUN_ID
from gatehouse.store.stage import Effects
from gatehouse.store.store import ArtifactStore

FORMAT = "gatehouse/ledger/1"
SEES_CHAMPIONS = Effects(reads="the ledger", why="Champions change without any parameter changing.")
WRITES_LEDGER = Effects(
    reads="the ledger",
    writes="the ledger, MLflow",
    why="Appends to the ledger once; a repeat finds its record.",
)


class Ledger:
    """The ledger of one registered model in one store."""

    def __init__(self, store: ArtifactStore, model_name: str) -> None:
        self.store = store
        self.model_name = model_name
        self._prefix = f"registry/{model_name}/ledger"
        self._verified: list[tuple[Record, str]] = []

    def records(self) -> list[Record]:
        """All records in order. Raises LedgerError if a record is missing or was altered."""
        return self._read()[0]

    def state(self) -> State:
        """The state after all records."""
        return fold(self.records())

    def extend(self, decide: Callable[[State], Record | None], by: str = "") -> State:
        """Append the records that `decide` returns, one after another, until it returns None; returns the last state.

        `decide` is a pure function of the state. It is called again if another writer was faster, and may raise.
        """
        records, head = self._read()
        state = fold(records)
        while (record := decide(state)) is not None:
            record = record.model_copy(update={"provenance": author(by) | {"run": os.environ.get(RUN_ID, "")}})
            after = fold([record], state)
            body = _sealed(record.model_dump(mode="json"), head)
            if self.store.objects.put_bytes(self._key(after.size), (canonical_json(body) + "\n").encode()):
                state, head = after, str(body["digest"])
            else:
                records, head = self._read()
                state = fold(records)
        return state

    def _key(self, number: int) -> str:
        return f"{self._prefix}/{number:06d}.json"

    def _read(self) -> tuple[list[Record], str]:
        """All records, and the digest of the last one; records that were read before are not read again."""
        keys = list(self.store.objects.list(self._prefix))
        for number, key in enumerate(keys, start=1):
            if key != self._key(number):
                raise LedgerError(f"{self._key(number)} is missing before {key}. Restore the ledger from a copy.")
        head = self._verified[-1][1] if self._verified else ""
        keys = keys[len(self._verified) :]
        for key, data in zip(keys, side_by_side(self.store.objects, self.store.objects.get_bytes, keys), strict=True):
            try:
                body: dict[str, Any] = json.loads(data)
                record = Record.model_validate(body["record"])
                sealed = _sealed(body["record"], head)
            except (ValueError, KeyError, TypeError, ValidationError) as error:
                raise LedgerError(f"{key} is not a ledger record: {error}. Restore the ledger from a copy.") from error
            if sealed != body:
                raise LedgerError(
                    f"{key} was altered, or does not follow the record before it: expected digest {sealed['digest']}, "
                    f"found {body.get('digest')}. Restore the ledger from a copy."
                )
            head = str(body["digest"])
            self._verified.append((record, head))
        return [record for record, _ in self._verified], head


def _sealed(record: dict[str, Any], previous: str) -> dict[str, Any]:
    """The record as stored, with the digest of the record before it."""
    body = {"format": FORMAT, "previous": previous, "record": record}
    return body | {"digest": digest_of(body)}


def model_names(store: ArtifactStore) -> list[str]:
    """Names of all models that have a ledger in this store."""
    return [name for name in store.objects.folders("registry") if any(store.objects.list(f"registry/{name}/ledger"))]
