"""What came of a run, read from its record: whatever KFP says of it, a stage that failed is on the record here."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from gatehouse.components.artifacts.run import Event, end_name, end_of, events
from gatehouse.components.artifacts.store import ArtifactStore

ENDED = ("finished", "hit", "failed", "stopped", "tolerated")
"""The events that end an attempt."""
REPORT = "report_end"
"""The stage that records the end of its run."""
_ENDS = (REPORT, "require_success")
State = Literal["succeeded", "failed", "stopped"]


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        state: `succeeded`, `failed`, or `stopped` by a signal or by whoever runs it.
        stage: The stage that failed first; empty for none.
        error: Class of its error.
        message: What the error says, without secrets.
        began: When the first stage began, in seconds since 1970; None where none did.
        seconds: From there to the last event.
        warnings: Stage and message of each warning on the record.
        last: When a task last began or ended; where a later end has a later time, the run was tried again.
    """

    state: State
    stage: str = ""
    error: str = ""
    message: str = ""
    began: float | None = None
    seconds: float = 0.0
    warnings: tuple[tuple[str, str], ...] = ()
    last: float = 0.0


def outcome_of(found: Iterable[Event], said: str = "") -> Outcome:
    """What came of a run.

    Args:
        found: Its events.
        said: How KFP says that it ended (`SUCCEEDED`, `FAILED`, `CANCELED`, …); empty where nobody says.
    """
    listed = sorted((event for event in found if event.stage not in _ENDS), key=_at)
    broken = unsuccessful(listed)
    known = Outcome(
        "succeeded",
        warnings=tuple(_warning(one) for one in listed if one.event == "warned"),
        last=max((_at(one) for one in listed if is_of_task(one)), default=0.0),
    )
    if listed:
        known = replace(known, began=_at(listed[0]) - seconds_of(listed[0]), seconds=_at(listed[-1]) - _at(listed[0]))
    if not broken and said in ("", "SUCCEEDED"):
        return known
    if not broken:
        told = f"KFP says {said}, and no stage left a failure on the record: a pod that never began or was evicted."
        return replace(known, state="stopped" if said.startswith("CANCEL") else "failed", message=told)
    first = broken[0]
    if first.event == "started":
        told = f"{first.stage} began and left no end: it was killed, as for memory, or with its node."
        return replace(known, state="failed", stage=first.stage, error="KilledError", message=told)
    state: State = "stopped" if all(one.event == "stopped" for one in broken) else "failed"
    error, message = str(first.body.get("error", "")), str(first.body.get("message", ""))
    return replace(known, state=state, stage=first.stage, error=error, message=message)


def is_of_task(event: Event) -> bool:
    """Whether an event begins or ends a task that does the work of a run: no part of a stage, no report of the end."""
    return ":" not in event.stage and event.stage not in _ENDS and event.event in ("started", *ENDED)


def _warning(event: Event) -> tuple[str, str]:
    return event.stage, str(event.body.get("message", ""))


def unsuccessful(found: Iterable[Event]) -> list[Event]:
    """The last event of each task that did not end well, in order of time; a later attempt at the same counts alone.

    That is a failure, a stop, or a start that nothing followed. Parts of stages are left out: their stage fails too.
    """
    last: dict[tuple[str, str], Event] = {}
    for event in sorted(found, key=lambda one: (one.attempt, one.event in ENDED)):
        if is_of_task(event):
            last[event.stage, str(event.body.get("asked", ""))] = event
    return sorted((one for one in last.values() if one.event in ("started", "failed", "stopped")), key=_at)


def record_end(store: ArtifactStore, run: str, outcome: Outcome, by: str, **about: str) -> bool:
    """Record how a run ended; False where nothing happened since the end that is on the record.

    Args:
        store: Holds the record.
        run: The run.
        outcome: What came of it.
        by: Who found out.
        **about: What else is known: project and pipeline.
    """
    known = end_of(store, run)
    if known is not None and outcome.last <= float(known.get("last", 0.0)):
        return False
    body = {"state": outcome.state, "stage": outcome.stage, "error": outcome.error, "message": outcome.message}
    times = {"began": outcome.began, "seconds": round(outcome.seconds, 3), "last": outcome.last}
    number = int(known["number"]) + 1 if known else 1
    return store.record(f"runs/{run}/{end_name(number)}", about | body | times | {"by": by})


def run_outcome(store: ArtifactStore, run: str, said: str = "") -> Outcome:
    """What came of a run, by its id; see `outcome_of`."""
    return outcome_of((event for _, event in events(store, run)), said)


def seconds_of(event: Event) -> float:
    """How long an attempt had worked when it left an event."""
    return float(event.body.get("seconds", 0.0))


def _at(event: Event) -> float:
    return float(event.body["at"])
