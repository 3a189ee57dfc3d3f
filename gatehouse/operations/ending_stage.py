"""The end of a run: its outcome by its record and KFP's state, the task that records it, and its one notice."""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from pydantic import Field

from gatehouse.operations.announcing import announce_ledger, announce_results
from gatehouse.operations.notice import Delivery, Form, When
from gatehouse.operations.outbox import SENDING, Outbox, delivery_of
from gatehouse.reports.advice import advised
from gatehouse.reports.format import duration, in_markdown, shortened, work_in_words
from gatehouse.runtime.redaction import public_address, redacted
from gatehouse.runtime.variables import ENDPOINT, UI
from gatehouse.store.announcement import Announcement, Tone, announce
from gatehouse.store.pages import pages_of
from gatehouse.store.reference import references_in
from gatehouse.store.run import REPORT, RUN_ID, Event, end_name, end_of, events
from gatehouse.store.stage import Effects, StageModel, stage
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.place import server_uri
from gatehouse.tracking.provenance import prices_here

ENDED = ("finished", "hit", "failed", "stopped", "tolerated")
"""The events that end an attempt of a stage."""
State = Literal["succeeded", "failed", "stopped", "unknown"]
_JUDGES = ("validate", "freshness", "monitor")
"""Stages whose verdict a person should see although the run succeeded; the gate sees those of others."""
_SEVERAL = ("require",)
"""Stages of which a pipeline has several tasks."""
_MEANINGS = {
    "succeeded": ("SUCCEEDED", "SKIPPED", "COMPLETE", "CACHED"),
    "failed": ("FAILED",),
    "stopped": ("CANCELED", "KILLED"),
    "not ended": ("PENDING", "RUNNING", "PAUSED", "CANCELING", "NEW"),
}
"""KFP's states of runs, and ML Metadata's of the group of an exit handler, which is RUNNING if it was terminated.

KILLED is ours: the process of a run is gone."""
_MOST_LINES, _LONGEST_LINE, _MOST_WARNINGS, _MOST_REASONS = 8, 400, 5, 5
_WORDS = {"hit": "from memo", "tolerated": "failed, and let pass"}


@dataclass(frozen=True)
class Verdict:
    """A verdict of a stage that is not `pass`; `report` is the identity of the artifact that explains it, or empty."""

    stage: str
    verdict: str
    reasons: tuple[str, ...]
    report: str


@dataclass(frozen=True)
class Outcome:
    """How a run ended. Times are in seconds since 1970.

    `state` is `stopped` after a signal or by a user, `unknown` for a state of KFP unknown here. `stage` failed first,
    with the class of its error and its message, without secrets. `seconds` runs from the first stage's beginning
    to the last event. `last` is when a task last began or ended: a later end with a later time means another try.
    `decision` is that of `register` on the candidate, empty for none. `ended` is when KFP says that it ended, 0 where
    nobody asked.
    """

    state: State
    stage: str = ""
    error: str = ""
    message: str = ""
    began: float | None = None
    seconds: float = 0.0
    warnings: tuple[tuple[str, str], ...] = ()
    last: float = 0.0
    decision: str = ""
    verdicts: tuple[Verdict, ...] = ()
    ended: float = 0.0

    @property
    def tone(self) -> Tone:
        """`bad` if the run or a verdict failed, `warn` if a person should look at the run, else `good`."""
        if self.state == "failed" or any(verdict.verdict != "warn" for verdict in self.verdicts):
            return "bad"
        looked_at = self.state != "succeeded" or self.decision not in ("", "approved") or self.warnings or self.verdicts
        return "warn" if looked_at else "good"

    @property
    def is_urgent(self) -> bool:
        """Whether those hear of it who ask for failures: also if it was stopped, or waits for a person's approval."""
        return self.tone == "bad" or self.state != "succeeded" or self.decision.startswith("awaiting")


def outcome_of(record: Iterable[Event], kfp_state: str = "") -> Outcome:
    """The outcome of a run, from its events and KFP's state: `KILLED` if its process is gone, empty if not asked."""
    ordered = sorted((event for event in record if event.stage != REPORT), key=_at)
    results = results_of(ordered)
    outcome = Outcome(
        "succeeded",
        decision=results.get("register", {}).get("decision", ""),
        warnings=tuple((e.stage, str(e.body.get("message", ""))) for e in ordered if e.event == "warned"),
        last=max((_at(event) for event in ordered if is_of_task(event)), default=0.0),
        verdicts=tuple(verdict for verdict in map(_verdict, results, results.values()) if verdict),
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


def results_of(ordered: Iterable[Event]) -> dict[str, dict[str, Any]]:
    """The last result of each stage, from events in order of time."""
    return {event.stage: event.body["result"] for event in ordered if event.body.get("result")}


def record_end(store: ArtifactStore, run: str, outcome: Outcome, by: str, **about: str) -> bool:
    """Record how a run ended, and which process found that; False if nothing happened since the recorded end."""
    recorded = end_of(store, run)
    if recorded is not None and outcome.last <= float(recorded.get("last", 0.0)):
        return False
    body = {"state": outcome.state, "stage": outcome.stage, "error": outcome.error, "message": outcome.message}
    times = {"began": outcome.began, "seconds": round(outcome.seconds, 3), "last": outcome.last}
    times |= {"ended": outcome.ended or time.time()}
    number = int(recorded["number"]) + 1 if recorded else 1
    return store.record(f"runs/{run}/{end_name(number)}", about | body | times | {"recorded": time.time(), "by": by})


def seconds_of(event: Event) -> float:
    """How long an attempt had run at an event."""
    return float(event.body.get("seconds", 0.0))


def _verdict(name: str, result: Mapping[str, Any]) -> Verdict | None:
    if name not in _JUDGES:
        return None
    # A contract keeps `pass` beside its warnings; the other judges say `warn`.
    verdict = "warn" if name == "validate" and result.get("warnings") else "pass"
    verdict = result["verdict"] if result["verdict"] != "pass" else verdict
    report = next(map(str, references_in(list(result.values()))), "")
    reasons = tuple(result.get("reasons") or result.get("warnings", ()))
    return None if verdict == "pass" else Verdict(name, verdict, reasons, report)


def _meaning(kfp_state: str) -> str:
    return next((meaning for meaning, states in _MEANINGS.items() if kfp_state in states), "unknown")


def _at(event: Event) -> float:
    return float(event.body["at"])


class EndRequest(StageModel):
    """The run that ended, and who hears of it. `kfp_state` is KFP's state of the earlier tasks.

    `owners` are by stage name; under "" is the owner of all other stages. `events` are the destinations of the project,
    which also hear of the ledger of its model.
    """

    project: str
    pipeline: str
    kfp_state: str = ""
    when: When = "never"
    form: Form = "generic"
    owners: dict[str, str] = Field({})
    events: dict[str, dict[str, Any]] = Field({})
    model_name: str = ""


class EndResult(StageModel):
    """The outcome of the run, the failed stage, whether all webhooks that get its end accepted it, and the answer."""

    state: str
    failed_stage: str
    posted: bool
    why: str


@stage(
    REPORT,
    title="Report the end",
    effects=Effects(
        reads="the run's record",
        writes="the run's end, webhooks",
        why="Only the run itself shows how it ended; an end is recorded once and posted once.",
    ),
)
def report_end(request: EndRequest, store: ArtifactStore) -> EndResult:
    """Record the end of the run that this process is part of, and tell the webhooks of it, and of all else they missed.

    KFP's state is compared with the run's own record: if a stage failed, the run failed. The notice also holds the
    verdicts that a person should look at. A failing webhook is reported in the result and raises no error.
    """
    run = os.environ.get(RUN_ID, "")
    outcome = run_outcome(store, run, request.kfp_state)
    about = {"project": request.project, "pipeline": request.pipeline}
    delivery = Delivery(False, 0, f"`alerts: {request.when}` asks for none")
    if run:
        record_end(store, run, outcome, "report_end", **about)
        outbox = Outbox(store, request.project, request.events, request.when, request.form)
        if outbox.destinations:
            key = announce_end(store, run, request.owners)
            announce_ledger(store, request.project, request.model_name, outbox.days)
            delivery = delivery_of(outbox.send(), key) or delivery
    return EndResult(state=outcome.state, failed_stage=outcome.stage, posted=delivery.delivered, why=delivery.why)


def announce_end(store: ArtifactStore, run: str, owners: Mapping[str, str]) -> str:
    """Announce a recorded end of a run, and what the run found, once, whichever process finds it first.

    `owners` are by stage name; under "" is the owner of all other stages. Returns the key of the end's announcement.
    """
    end = end_of(store, run) or {}
    about = {"project": str(end["project"]), "pipeline": str(end["pipeline"])}
    # That a webhook was down is no part of how the run ended: what is told of it is always the same.
    record = sorted((event for _, event in events(store, run) if event.stage != SENDING), key=_at)
    recorded = {name: end[name] for name in ("state", "stage", "error", "message")}
    outcome = replace(outcome_of(record), **recorded)
    where = f" in {outcome.stage}" if outcome.stage else ""
    title = f"Gatehouse, {about['project']}: {about['pipeline']} {outcome.state}{where}"
    if outcome.state == "succeeded":
        title += f", {outcome.decision} by the gate" if outcome.decision not in ("", "approved") else ""
        title += "".join(f", {verdict.stage} says {verdict.verdict}" for verdict in outcome.verdicts)
    lines = _lines(outcome, results_of(record))
    verdicts = [
        asdict(verdict)
        | {"reasons": _first(verdict.reasons, 4 * _MOST_REASONS), "page": _page(store, [verdict.report])}
        for verdict in outcome.verdicts
    ]
    mlflow = server_uri()
    facts = {
        "pipeline": about["pipeline"],
        "run": run,
        "stage": outcome.stage,
        "error": outcome.error,
        "owner": owners.get(outcome.stage, "") or owners.get("", ""),
        "duration": duration(outcome.seconds) if outcome.began is not None else "",
        "cost": _cost(record),
    }
    links = {
        "KFP": page_in_kfp(f"runs/details/{run}"),
        "report": _report(store, record, outcome),
        "MLflow": public_address(mlflow) if mlflow.startswith("http") else "",
        **{verdict["stage"]: verdict["page"] for verdict in verdicts},
    }
    number = end["number"]  # A run that is tried again ends again.
    fields = {"run": run, "state": outcome.state, "stage": outcome.stage, "error": outcome.error, "verdicts": verdicts}
    announce_results(store, run, record, about)
    ended = Announcement(
        type="run.ended",
        key=f"end/{run}/{number}",
        at=float(end.get("ended") or end["recorded"]),
        subject=run,
        what=f"{about['pipeline']} {outcome.state}",
        title=title,
        tone=outcome.tone,
        urgent=outcome.is_urgent,
        lines=lines,
        facts=facts,
        links=links,
        about=fields | about,
    )
    return announce(store, about["project"], ended)


def page_in_kfp(path: str) -> str:
    """Address of a page of KFP's UI; empty where no address of KFP is known."""
    kfp = public_address(os.environ.get(UI) or os.environ.get(ENDPOINT, ""))
    return f"{kfp.rstrip('/')}/#/{path}" if kfp else ""


def _lines(outcome: Outcome, results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The cause of the end, the gate's decision, verdicts and warnings, each a few lines without secrets."""
    lines = _first(outcome.message.splitlines(), _MOST_LINES)
    if outcome.decision and outcome.state == "succeeded":
        reasons = (outcome.decision, *advised(results["register"].get("reasons", ())))
        lines += [f"the gate: {reason}" for reason in reasons]
    for verdict in outcome.verdicts:
        # The error of a run that the verdict ended has the reasons already.
        reasons = tuple(reason for reason in verdict.reasons if reason not in outcome.message)
        lines += [f"{verdict.stage} says {verdict.verdict}: {reason}" for reason in _first(reasons, _MOST_REASONS)]
    lines += [f"ordered by monitoring: {reason}" for reason in results.get("prepare", {}).get("ordered", ())]
    warnings = [f"warning in {name}: {warning}" for name, warning in outcome.warnings]
    return [shortened(redacted(line), _LONGEST_LINE) for line in [*lines, *_first(warnings, _MOST_WARNINGS)]]


def _first(lines: Sequence[str], most: int) -> list[str]:
    """The first of many lines that are not empty, shortened and without secrets, and the number of the others."""
    shown = [shortened(redacted(line), _LONGEST_LINE) for line in lines if line.strip()]
    more = [f"and {len(shown) - most} more in the run's record"] if len(shown) > most else []
    return [*shown[:most], *more]


def _report(store: ArtifactStore, ordered: Sequence[Event], outcome: Outcome) -> str:
    """The newest page; if the run failed, the page of the failed stage or of a negative verdict."""
    for event in reversed(ordered):
        result = event.body.get("result", {})
        negative = result.get("verdict", "pass") not in ("pass", "warn")
        explains = outcome.state == "succeeded" or event.stage == outcome.stage or negative
        if explains and (page := _page(store, references_in(list(result.values())))):
            return page
    return ""


def _page(store: ArtifactStore, references: Iterable[Any]) -> str:
    """The address of the newest page of the first of these artifacts that has one; empty for none."""
    pages = (list(pages_of(store, reference)) for reference in references if reference)
    return next((f"{store.address}/{found[-1]}" for found in pages if found), "")


def _cost(record: Iterable[Event]) -> str:
    """The cost of all stages; empty if the price of one is not known, because the sum would be too low."""
    prices = prices_here()
    ended = [event for event in record if event.event in ENDED and ":" not in event.stage]
    costs = [prices.cost(seconds_of(event), str(event.body.get("machine", ""))) for event in ended]
    known = [cost for cost in costs if cost is not None]
    return f"{sum(known):.2f} {prices.currency}" if costs and len(known) == len(costs) else ""


def summary_of(store: ArtifactStore, result: EndResult) -> str:
    """The end of the run that this process is part of as Markdown, for KFP's UI: every stage with its outcome."""
    run = os.environ.get(RUN_ID, "")
    record = [event for _, event in events(store, run)]
    outcome = outcome_of(record)
    lines = [f"# Run {result.state}{f' in {in_markdown(result.failed_stage)}' if result.failed_stage else ''}", ""]
    if outcome.message:
        lines += [
            f"**{in_markdown(outcome.error)}**",
            "",
            *(f"    {line}" for line in outcome.message.splitlines()),
            "",
        ]
    lines += ["| stage | attempt | end | time | result |", "| --- | --- | --- | --- | --- |"]
    ended = [event for event in record if event.event in ENDED and ":" not in event.stage]
    for event in sorted(ended, key=_at):
        values = event.body.get("result", {})
        gist = event.body.get("error") or values.get("decision") or values.get("verdict") or values.get("summary", "")
        gist = "; ".join(filter(None, [str(gist), work_in_words(event.body)]))
        lines.append(
            f"| {in_markdown(event.stage)} | {event.attempt} | {_WORDS.get(event.event, event.event)} "
            f"| {duration(seconds_of(event))} | {in_markdown(gist)} |"
        )
    lines += [f"\n- warning in {in_markdown(name)}: {in_markdown(message)}" for name, message in outcome.warnings]
    lines.append(f"\n{'The notice was posted.' if result.posted else f'The notice was not posted: {result.why}.'}")
    return "\n".join(lines) + "\n"
