"""The notice of a run's end: what happened, why, its owners, a link to the report, the duration and the cost."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from gatehouse.kfp_api.variables import ENDPOINT, UI
from gatehouse.operations.alerting.notice import Notice, Tone
from gatehouse.operations.ending.outcome import ENDED, Outcome, seconds_of
from gatehouse.reports.advice import advised
from gatehouse.reports.format import duration, shortened
from gatehouse.runtime.redaction import redacted, shown
from gatehouse.store.pages import pages_of
from gatehouse.store.reference import references_in
from gatehouse.store.run import Event
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.cost import prices_here
from gatehouse.tracking.kfp_task import server_uri

_MOST_LINES, _LONGEST_LINE = 8, 400
_WARNINGS = 5


def notice_of(
    store: ArtifactStore,
    run: str,
    outcome: Outcome,
    found: Sequence[Event],
    about: Mapping[str, str],
    owners: Mapping[str, str],
) -> Notice:
    """The notice of a run's end.

    Args:
        store: The artifact store with the reports.
        run: The run.
        outcome: Its outcome.
        found: Its events.
        about: Project and pipeline.
        owners: Owner of each stage, by stage name; under "" the owner of all other stages.
    """
    where = f" in {outcome.stage}" if outcome.stage else ""
    title = f"Gatehouse, {about['project']}: {about['pipeline']} {outcome.state}{where}"
    facts = {
        "pipeline": about["pipeline"],
        "run": run,
        "stage": outcome.stage,
        "error": outcome.error,
        "owner": owners.get(outcome.stage, "") or owners.get("", ""),
        "duration": duration(outcome.seconds) if outcome.began is not None else "",
        "cost": _cost(found),
    }
    tone: Tone = "good" if outcome.state == "succeeded" else "bad" if outcome.state == "failed" else "warn"
    if tone == "good" and outcome.warnings:
        tone = "warn"
    lines = _first_lines(outcome.message)
    if (gate := _result(found, "register")) and outcome.state == "succeeded":
        lines += [_line(f"the gate: {line}") for line in (gate["decision"], *advised(gate.get("reasons", ())))]
        if gate["decision"] != "approved":
            title, tone = f"{title}, {gate['decision']} by the gate", "warn"
    lines += [_line(f"ordered by monitoring: {why}") for why in _result(found, "prepare").get("ordered", ())]
    lines += [_line(f"warning in {stage}: {message}") for stage, message in outcome.warnings[:_WARNINGS]]
    if len(outcome.warnings) > _WARNINGS:
        lines.append(f"and {len(outcome.warnings) - _WARNINGS} more warnings in the run's record")
    return Notice(
        title, tone, lines, {name: value for name, value in facts.items() if value}, _links(store, run, found, outcome)
    )


def _first_lines(message: str) -> list[str]:
    lines = [shortened(line, _LONGEST_LINE) for line in redacted(message).splitlines() if line.strip()]
    more = [f"and {len(lines) - _MOST_LINES} more lines in the run's record"] if len(lines) > _MOST_LINES else []
    return lines[:_MOST_LINES] + more


def _result(found: Sequence[Event], stage: str) -> dict[str, Any]:
    """The result of a stage that succeeded, or an empty dictionary."""
    return next((event.body["result"] for event in found if event.stage == stage and event.body.get("result")), {})


def _links(store: ArtifactStore, run: str, found: Sequence[Event], outcome: Outcome) -> dict[str, str]:
    ui, tracking = os.environ.get(UI) or os.environ.get(ENDPOINT, ""), server_uri()
    links = {
        "KFP": f"{shown(ui).rstrip('/')}/#/runs/details/{run}" if shown(ui) else "",
        "report": _report(store, found, outcome),
    }
    links["MLflow"] = shown(tracking) if tracking.startswith("http") else ""
    return {name: place for name, place in links.items() if place}


def _report(store: ArtifactStore, found: Sequence[Event], outcome: Outcome) -> str:
    """The newest report page; if the run failed, the page of the failed stage or of a negative verdict."""
    for event in sorted(found, key=lambda one: float(one.body["at"]), reverse=True):
        says_no = event.body.get("result", {}).get("verdict", "pass") not in ("pass", "warn")
        if outcome.state != "succeeded" and event.stage != outcome.stage and not says_no:
            continue
        for reference in references_in(list(event.body.get("result", {}).values())):
            if drawn := list(pages_of(store, reference)):
                return f"{store.address}/{drawn[-1]}"
    return ""


def _cost(found: Sequence[Event]) -> str:
    """The total cost of the stages at the prices of their machines; empty if a price is not known."""
    prices = prices_here()
    ended = [event for event in found if event.event in ENDED and ":" not in event.stage]
    costs = [prices.cost(seconds_of(event), str(event.body.get("machine", ""))) for event in ended]
    known = [cost for cost in costs if cost is not None]
    return f"{sum(known):.2f} {prices.currency}" if known and len(known) == len(costs) else ""


def _line(text: str) -> str:
    return shortened(redacted(text), _LONGEST_LINE)
