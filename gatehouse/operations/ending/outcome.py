"""The outcome of a run, from its record and KFP's state: if they disagree, the run failed."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from gatehouse.store.run import REPORT, Event, end_name, end_of, events
from gatehouse.store.store import ArtifactStore

ENDED = ("finished", "hit", "failed", "stopped", "tolerated")
"""The events that end an attempt of a stage."""
State = Literal["succeeded", "failed", "stopped", "unknown"]
_SEVERAL = ("alert",)
"""Stages of which a pipeline has several tasks."""
_MEANINGS = {
    "succeeded": ("SUCCEEDED", "SKIPPED", "COMPLETE", "CACHED"),
    "failed": ("FAILED",),
    "stopped": ("CANCELED", "KILLED"),
    "not ended": ("PENDING", "RUNNING", "PAUSED", "CANCELING", "NEW"),
}
"""KFP's states of runs, and ML Metadata's of the group of an exit handler, which is RUNNING if it was terminated.

KILLED is ours: the process of a run is gone."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended. Times are in seconds since 1970.

    `state` is `stopped` after a signal or by a user, `unknown` for a state of KFP unknown here. `stage` failed first,
    with the class of its error and its message, without secrets. `seconds` runs from the first stage's beginning
    to the last event. `last` is when a task last began or ended: a later end with a later time means another try.
    `refused` says that the gate did not approve the candidate.
    """

    state: State
    stage: str = ""
    error: str = ""
    message: str = ""
    began: float | None = None
    seconds: float = 0.0
    warnings: tuple[tuple[str, str], ...] = ()
    last: float = 0.0
    refused: bool = False

    @property
    def warns(self) -> bool:
        """Whether `alerts: warn` posts the end of the run although it succeeded."""
        return self.refused or bool(self.warnings)


def outcome_of(record: Iterable[Event], kfp_state: str = "") -> Outcome:
    """The outcome of a run, from its events and KFP's state: `KILLED` if its process is gone, empty if not asked."""
    ordered = sorted((event for event in record if event.stage != REPORT), key=_at)
    decisions = [e.body["result"]["decision"] for e in ordered if e.stage == "register" and e.body.get("result")]
    outcome = Outcome(
        "succeeded",
        refused=decisions[-1:] not in ([], ["approved"]),
        warnings=tuple((e.stage, str(e.body.get("message", ""))) for e in ordered if e.event == "warned"),
        last=max((_at(event) for event in ordered if is_of_task(event)), default=0.0),
    )
    if ordered:
        began = _at(ordered[0]) - seconds_of(ordered[0])
        outcome = replace(outcome, began=began, seconds=_at(ordered[-1]) - _at(ordered[0]))
    meaning = _meaning(kfp_state) if kfp_state else "succeeded"
    # KFP says RUNNING of a group only if a user terminated the run, or its pod was deleted.
    canceled = meaning in ("stopped", "not ended") and kfp_state != "KILLED"
    failures = unsuccessful(ordered)
    if not failures:
        if meaning == "succeeded":
            return outcome
        if meaning == "unknown":
            message = f"KFP says {kfp_state}, a state that this release does not know."
            return replace(outcome, state="unknown", message=message)
        message = f"KFP says {kfp_state}, and no stage recorded a failure: a pod never began, or was evicted."
        if canceled:
            message = f"KFP says {kfp_state}: the run was stopped between two stages, or before its first one."
        return replace(outcome, state="failed" if meaning == "failed" else "stopped", message=message)
    if canceled:  # A signal ends a task before it records anything.
        failures = [event for event in failures if event.event == "failed"] or failures
    first = failures[0]
    outcome = replace(outcome, stage=first.stage)
    if first.event == "started" and canceled:
        message = f"{first.stage} was stopped before it ended."
        return replace(outcome, state="stopped", error="StoppedError", message=message)
    if first.event == "started":
        message = f"{first.stage} began and recorded no end: it was killed, for example for memory, or with its node."
        return replace(outcome, state="failed", error="KilledError", message=message)
    return replace(
        outcome,
        state="stopped" if all(event.event == "stopped" for event in failures) else "failed",
        error=str(first.body.get("error", "")),
        message=str(first.body.get("message", "")),
    )


def outcome_in_kfp(store: ArtifactStore, run: str, kfp_state: str) -> Outcome:
    """The outcome of a run that has ended in KFP: KFP's state and the run's record have to agree.

    A recorded end that is older than an event of a stage does not count: the run was tried again, and KFP does not
    start the task that records the end a second time.
    """
    outcome, end = run_outcome(store, run, kfp_state), end_of(store, run)
    if outcome.state == "stopped" and _meaning(kfp_state) == "failed":
        message = f"{outcome.stage} was ended by a signal: at its timeout, with its node, or by Argo."
        return replace(outcome, state="failed", error="KilledError", message=message)
    if outcome.state != "succeeded":
        return outcome
    if end is None:
        message = f"KFP says {kfp_state}, and {store.address} has no end of the run: the task that records it failed."
        return replace(outcome, state="failed", error="NoRecordError", message=message)
    # The task that records the end may see RUNNING although nobody stopped a stage: SUCCEEDED is KFP's last word.
    if end["state"] in ("succeeded", "unknown", "stopped") or outcome.last > float(end.get("last", 0.0)):
        return outcome
    message = f"KFP says {kfp_state}, and the record of the run says {end['state']}: {end['message']}"
    return replace(outcome, state="failed", stage=str(end["stage"]), error=str(end["error"]), message=message)


def run_outcome(store: ArtifactStore, run: str, kfp_state: str = "") -> Outcome:
    """The outcome of a run, by its id; see `outcome_of`."""
    return outcome_of((event for _, event in events(store, run)), kfp_state)


def is_of_task(event: Event) -> bool:
    """Whether an event begins or ends a task that works for the run: no sub-stage, no report of the end."""
    return ":" not in event.stage and event.stage != REPORT and event.event in ("started", *ENDED)


def unsuccessful(record: Iterable[Event]) -> list[Event]:
    """The last event of each stage that did not succeed, in order of time; only its last attempt counts.

    These are failures, stops, and starts without an end. Sub-stages are left out, because their stage fails too. A
    later attempt may have another request: in a task of several stages, an earlier one has looked at the world again.
    Stages with several tasks in a pipeline are distinguished by their request.
    """
    last: dict[tuple[str, str], Event] = {}
    for event in sorted(record, key=lambda event: (event.attempt, event.event in ENDED)):
        if is_of_task(event):
            request_digest = str(event.body.get("request_digest", "")) if event.stage in _SEVERAL else ""
            last[event.stage, request_digest] = event
    return sorted((event for event in last.values() if event.event in ("started", "failed", "stopped")), key=_at)


def record_end(store: ArtifactStore, run: str, outcome: Outcome, by: str, **about: str) -> bool:
    """Record how a run ended, and which process found that; False if nothing happened since the recorded end."""
    recorded = end_of(store, run)
    if recorded is not None and outcome.last <= float(recorded.get("last", 0.0)):
        return False
    body = {"state": outcome.state, "stage": outcome.stage, "error": outcome.error, "message": outcome.message}
    times = {"began": outcome.began, "seconds": round(outcome.seconds, 3), "last": outcome.last}
    number = int(recorded["number"]) + 1 if recorded else 1
    return store.record(f"runs/{run}/{end_name(number)}", about | body | times | {"recorded": time.time(), "by": by})


def seconds_of(event: Event) -> float:
    """How long an attempt had run at an event."""
    return float(event.body.get("seconds", 0.0))


def _meaning(kfp_state: str) -> str:
    return next((meaning for meaning, states in _MEANINGS.items() if kfp_state in states), "unknown")


def _at(event: Event) -> float:
    return float(event.body["at"])
