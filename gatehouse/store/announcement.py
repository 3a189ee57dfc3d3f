"""What a project announces: create-only records of what happened, by day, that `gatehouse.operations.outbox` sends."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from gatehouse.store.canonical import sha256_bytes
from gatehouse.store.store import ArtifactStore

FOLDER = "events"
Tone = Literal["bad", "warn", "good"]
TYPES = {
    "data.delivered": "A run read data that no run had read before: there is a new snapshot.",
    "drift.found": "Monitoring found a change, or could not judge.",
    "model.refused": "The gate refused a candidate.",
    "model.registered": "The gate made a candidate a version.",
    "model.awaiting-approval": "A version waits for the approval of a person.",
    "rollout.stepped": "A version became shadow or canary, or got another share of the requests.",
    "model.promoted": "A version became the champion.",
    "model.rolled-back": "A version was taken out of an alias, as by a rollback.",
    "run.ended": "A run of a pipeline ended.",
    "schedule.late": "No run of a schedule succeeded in time.",
}
"""In the order in which a run causes them: the times of records are whole seconds."""


@dataclass(frozen=True)
class Announcement:
    """One thing that happened.

    Attributes:
        type: One of `TYPES`.
        key: What happened, in the words of every process that finds it: its SHA-256 is the id of the event.
        at: When it happened, in seconds since 1970; also the same for every process.
        subject: What it happened to: a run, `model:version`, the reference of an artifact.
        what: What happened, in a few words for warnings.
        title, tone, lines, facts, links: What a person is shown.
        about: Fields for programs.
        urgent: Whether those hear of it who ask for failures alone, whatever its tone.
    """

    type: str
    key: str
    at: float
    subject: str
    what: str
    title: str
    tone: Tone
    lines: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    urgent: bool = False

    @property
    def id(self) -> str:
        """The id of the event, the same whoever sends it and however often."""
        return id_of(self.key)

    @property
    def name(self) -> str:
        """Its record in the folder of a project: who lists a folder knows what it is, and when it was."""
        moment, level = datetime.fromtimestamp(self.at, UTC), "bad" if self.urgent else self.tone
        return f"{moment:%Y-%m-%d/%H%M%S}_{self.type}_{level}_{self.id}.json"


def id_of(key: str) -> str:
    """The id of the event with this key."""
    return sha256_bytes(key.encode())


def announce(store: ArtifactStore, project: str, announcement: Announcement) -> str:
    """Record what happened; a repeat changes nothing. It is sent when a run of the project ends, or by `reconcile`.

    Returns the key of the record.
    """
    key = f"{FOLDER}/{project}/{announcement.name}"
    store.record(key, asdict(announcement))
    return key
