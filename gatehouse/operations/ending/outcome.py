"""The outcome of a run, from its record and KFP's state: where they disagree, the run failed."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from gatehouse.operations.ending.states import meaning_of
from gatehouse.store.run import REPORT, Event, end_name, end_of, events
from gatehouse.store.store import ArtifactStore

ENDED = ("finished", "hit", "failed", "stopped", "tolerated")
"""The events that end an attempt of a stage."""
_SEVERAL = ("alert",)
"""Stages that a pipeline has several tasks of."""
State = Literal["succeeded", "failed", "stopped", "unknown"]


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        state: `succeeded`, `failed`, `stopped` by a signal or a user, or `unknown` where KFP's word for it is unknown.
        stage: The stage that failed first; empty for none.
        error: Class of its error.
        message: The error message, without secrets.
        began: When the first stage began, in seconds since 1970; None if none did.
        seconds: Time from there to the last event.
        warnings: Stage and message of each recorded warning.
        last: When a task last began or ended; a later end with a later time means that the run was tried again.
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
    """The outcome of a run.

    Args:
        found: Its events.
        said: KFP's state of the run or of its tasks (see `states`), or `KILLED` of one whose process is gone; empty
            if it is not asked.
    """
    listed = sorted((event for event in found if event.stage != REPORT), key=_at)
    broken = unsuccessful(listed)
    known = Outcome(
        "succeeded",
        warnings=tuple(_warning(one) for one in listed if one.event == "warned"),
        last=max((_at(one) for one in listed if is_of_task(one)), default=0.0),
    )
    if listed:
        known = replace(known, began=_at(listed[0]) - seconds_of(listed[0]), seconds=_at(listed[-1]) - _at(listed[0]))
    meaning = meaning_of(said) if said else "succeeded"
    # KFP says RUNNING of a group only if a user terminated the run, or its pod was deleted.
    canceled = meaning in ("stopped", "not ended") and said != "KILLED"
    if not broken and meaning == "succeeded":
        return known
    if not broken and meaning == "unknown":
        return replace(known, state="unknown", message=f"KFP says {said}, a state that this release does not know.")
    if not broken:
        told = f"KFP says {said}, and no stage left a failure on the record: a pod never began, or was evicted."
        if canceled:
            told = f"KFP says {said}: the run was stopped between two stages, or before its first one."
        return replace(known, state="failed" if meaning == "failed" else "stopped", message=told)
    if canceled:  # A signal ends a task before it notes anything.
        broken = [one for one in broken if one.event == "failed"] or broken
    first = broken[0]
    if first.event == "started" and canceled:
        told = f"{first.stage} was stopped before it ended."
        return replace(known, state="stopped", stage=first.stage, error="StoppedError", message=told)
    if first.event == "started":
        told = f"{first.stage} began and left no end: it was killed, as for memory, or with its node."
        return replace(known, state="failed", stage=first.stage, error="KilledError", message=told)
    state: State = "stopped" if all(one.event == "stopped" for one in broken) else "failed"
    error, message = str(first.body.get("error", "")), str(first.body.get("message", ""))
    return replace(known, state=state, stage=first.stage, error=error, message=message)


def outcome_in_kfp(store: ArtifactStore, run: str, said: str) -> Outcome:
    """The outcome of a run that has ended in KFP: KFP's state and the run's record have to agree.

    A record that is older than an event of a stage counts no more: the run was tried again, and then KFP does not
    start the task again that records its end.

    Args:
        store: The artifact store with the record.
        run: Id of the run.
        said: KFP's state of the run.
    """
    outcome, end = run_outcome(store, run, said), end_of(store, run)
    if outcome.state == "stopped" and meaning_of(said) == "failed":
        told = f"{outcome.stage} was ended by a signal: at its timeout, with its node, or by Argo."
        return replace(outcome, state="failed", error="KilledError", message=told)
    if outcome.state != "succeeded":
        return outcome
    if end is None:
        told = f"KFP says {said}, and the store {store.address} has no end of the run: the task that records it failed."
        return replace(outcome, state="failed", error="NoRecordError", message=told)
    # KFP told the task that records the end RUNNING, though nobody stopped a stage: SUCCEEDED is its last word.
    if end["state"] in ("succeeded", "unknown", "stopped") or outcome.last > float(end.get("last", 0.0)):
        return outcome
    told = f"KFP says {said}, and the record of the run says {end['state']}: {end['message']}"
    return replace(outcome, state="failed", stage=str(end["stage"]), error=str(end["error"]), message=told)


def is_of_task(event: Event) -> bool:
    """Whether an event begins or ends a task that does work of a run: no sub-stage, no report of the end."""
    return ":" not in event.stage and event.stage != REPORT and event.event in ("started", *ENDED)


def _warning(event: Event) -> tuple[str, str]:
    return event.stage, str(event.body.get("message", ""))


def unsuccessful(found: Iterable[Event]) -> list[Event]:
    """The last event of each stage that did not succeed, in order of time; only its last attempt counts.

    These are failures, stops, and starts without an end. Sub-stages are left out, because their stage fails too. A
    later attempt may ask for something else: in a task of several stages, an earlier one has looked at the world again.
    A stage that stands in a pipeline several times is known by what it is asked for.
    """
    last: dict[tuple[str, str], Event] = {}
    for event in sorted(found, key=lambda one: (one.attempt, one.event in ENDED)):
        if is_of_task(event):
            asked = str(event.body.get("asked", "")) if event.stage in _SEVERAL else ""
            last[event.stage, asked] = event
    return sorted((one for one in last.values() if one.event in ("started", "failed", "stopped")), key=_at)


def record_end(store: ArtifactStore, run: str, outcome: Outcome, by: str, **about: str) -> bool:
    """Record how a run ended; False if nothing happened since the recorded end.

    Args:
        store: The artifact store with the record.
        run: The run.
        outcome: Its outcome.
        by: Which process found the end.
        **about: Other known facts: project and pipeline.
    """
    known = end_of(store, run)
    if known is not None and outcome.last <= float(known.get("last", 0.0)):
        return False
    body = {"state": outcome.state, "stage": outcome.stage, "error": outcome.error, "message": outcome.message}
    times = {"began": outcome.began, "seconds": round(outcome.seconds, 3), "last": outcome.last}
    times["recorded"] = time.time()
    number = int(known["number"]) + 1 if known else 1
    return store.record(f"runs/{run}/{end_name(number)}", about | body | times | {"by": by})


def run_outcome(store: ArtifactStore, run: str, said: str = "") -> Outcome:
    """The outcome of a run, by its id; see `outcome_of`."""
    return outcome_of((event for _, event in events(store, run)), said)


def seconds_of(event: Event) -> float:
    """How long an attempt had run at an event."""
    return float(event.body.get("seconds", 0.0))


def _at(event: Event) -> float:
    return float(event.body["at"])
