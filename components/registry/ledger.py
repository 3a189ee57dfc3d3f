"""The promotion ledger: the truth about which model is champion. Append-only; its state is a fold over its records."""

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from functools import reduce

from gatehouse.components.artifacts.store import ArtifactStore

CHAMPION, STAGING = "champion", "staging"


@dataclass(frozen=True)
class Record:
    """One thing that happened to a model's versions.

    Attributes:
        event: `registered` (a new version), `confirmed` (a version judged again), `refused`, `promoted`, `rolled back`.
        version: The version that it is about; 0 for a refused candidate that has none.
        model: Identity of the model.
        evaluation: Identity of the evaluation, where one was judged.
        judged_against: Identity of the champion in that evaluation; empty for none.
        training_set: Identity.
        split: Identity.
        policy: Digest of the policy.
        aliases: Aliases that move to this version.
        reasons: Why it was refused, or what the person who acted said.
        run: Run in which it happened.
        at: Seconds since 1970, UTC.
    """

    event: str
    version: int
    model: str
    evaluation: str = ""
    judged_against: str = ""
    training_set: str = ""
    split: str = ""
    policy: str = ""
    aliases: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    run: str = ""
    at: float = 0.0


@dataclass(frozen=True)
class State:
    """What the records add up to.

    Attributes:
        versions: Model identity by version, version 1 first.
        aliases: Version by alias.
        champions: Versions in the order in which they became champion.
    """

    versions: tuple[str, ...] = ()
    aliases: tuple[tuple[str, int], ...] = ()
    champions: tuple[int, ...] = ()

    def version_of(self, model: str) -> int:
        """The version of a model, or 0."""
        return self.versions.index(model) + 1 if model in self.versions else 0

    def alias(self, name: str) -> int:
        """The version that has an alias, or 0."""
        return dict(self.aliases).get(name, 0)

    def aliases_of(self, version: int) -> tuple[str, ...]:
        """The aliases of a version, sorted."""
        return tuple(sorted(name for name, holder in self.aliases if holder == version))

    @property
    def champion(self) -> str:
        """Identity of the champion, or an empty string."""
        version = self.alias(CHAMPION)
        return self.versions[version - 1] if version else ""

    def champion_other_than(self, model: str) -> str:
        """Identity of the last champion that is not `model`, or an empty string."""
        others = [self.versions[version - 1] for version in self.champions if self.versions[version - 1] != model]
        return others[-1] if others else ""


def fold(records: Iterable[Record]) -> State:
    """The state after `records`, in order."""
    return reduce(_apply, records, State())


def _apply(state: State, record: Record) -> State:
    versions = (*state.versions, record.model) if record.event == "registered" else state.versions
    moved = dict(state.aliases) | {alias: record.version for alias in record.aliases}
    champions = state.champions
    if CHAMPION in record.aliases and record.version != state.alias(CHAMPION):
        champions = (*champions, record.version)
    return State(versions, tuple(sorted(moved.items())), champions)


class Ledger:
    """The ledger of one model name in one store."""

    def __init__(self, store: ArtifactStore, name: str) -> None:
        self._store = store
        self.name = name
        self._prefix = f"registry/{name}/ledger"

    def records(self) -> list[Record]:
        """All records, oldest first."""
        found = []
        for key in self._store.objects.list(self._prefix):
            body = json.loads(self._store.objects.get_bytes(key))
            found.append(Record(**body | {"aliases": tuple(body["aliases"]), "reasons": tuple(body["reasons"])}))
        return found

    def state(self) -> State:
        """What the records add up to."""
        return fold(self.records())

    def append(self, decide: Callable[[list[Record], State], Record | None]) -> Record | None:
        """Append what `decide` makes of the records so far; where another writer was first, decide again.

        Args:
            decide: A pure function of records and state; None where there is nothing to write.

        Returns:
            The record written, or None.
        """
        while True:
            records = self.records()
            record = decide(records, fold(records))
            if record is None:
                return None
            stamped = replace(record, at=time.time())
            if self._store.record(f"{self._prefix}/{len(records) + 1:06d}.json", asdict(stamped)):
                return stamped
