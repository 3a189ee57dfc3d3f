"""The notice of a run's end: outcome, reasons, owner, links, duration and cost. Each end is posted once."""

import os
from collections.abc import Mapping
from typing import Any

from gatehouse.operations.alerting.notice import VERSION, Delivery, Form, Notice, Tone, body_of, deliver
from gatehouse.operations.ending.outcome import ENDED, Outcome, seconds_of
from gatehouse.reports.advice import advised
from gatehouse.reports.format import duration, shortened
from gatehouse.runtime.redaction import public_address, redacted
from gatehouse.runtime.variables import ENDPOINT, UI
from gatehouse.store.canonical import sha256_bytes
from gatehouse.store.pages import pages_of
from gatehouse.store.reference import references_in
from gatehouse.store.run import end_of, events
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.place import server_uri
from gatehouse.tracking.provenance import prices_here

_MOST_LINES, _LONGEST_LINE, _MOST_WARNINGS = 8, 400, 5


def post_end(
    store: ArtifactStore,
    run: str,
    outcome: Outcome,
    about: Mapping[str, str],
    owners: Mapping[str, str],
    form: Form = "generic",
) -> Delivery:
    """Post the end of a run to the webhook, once for each end, whichever process finds it first.

    `about` has `project` and `pipeline`. `owners` are by stage name; under "" is the owner of all other stages.
    """
    record = [event for _, event in events(store, run)]

    def line(text: str) -> str:
        return shortened(redacted(text), _LONGEST_LINE)

    def result(stage: str) -> dict[str, Any]:
        return next((event.body["result"] for event in record if event.stage == stage and event.body.get("result")), {})

    where = f" in {outcome.stage}" if outcome.stage else ""
    title = f"Gatehouse, {about['project']}: {about['pipeline']} {outcome.state}{where}"
    tone: Tone = "good" if outcome.state == "succeeded" else "bad" if outcome.state == "failed" else "warn"
    if tone == "good" and outcome.warnings:
        tone = "warn"

    message = [shortened(text, _LONGEST_LINE) for text in redacted(outcome.message).splitlines() if text.strip()]
    lines = message[:_MOST_LINES]
    if len(message) > _MOST_LINES:
        lines.append(f"and {len(message) - _MOST_LINES} more lines in the run's record")
    if (gate := result("register")) and outcome.state == "succeeded":
        lines += [line(f"the gate: {text}") for text in (gate["decision"], *advised(gate.get("reasons", ())))]
        if gate["decision"] != "approved":
            title, tone = f"{title}, {gate['decision']} by the gate", "warn"
    lines += [line(f"ordered by monitoring: {reason}") for reason in result("prepare").get("ordered", ())]
    lines += [line(f"warning in {stage}: {warning}") for stage, warning in outcome.warnings[:_MOST_WARNINGS]]
    if len(outcome.warnings) > _MOST_WARNINGS:
        lines.append(f"and {len(outcome.warnings) - _MOST_WARNINGS} more warnings in the run's record")

    # A sum without the cost of every stage would be too low.
    prices = prices_here()
    ended = [event for event in record if event.event in ENDED and ":" not in event.stage]
    costs = [prices.cost(seconds_of(event), str(event.body.get("machine", ""))) for event in ended]
    total = sum(cost for cost in costs if cost is not None)
    facts = {
        "pipeline": about["pipeline"],
        "run": run,
        "stage": outcome.stage,
        "error": outcome.error,
        "owner": owners.get(outcome.stage, "") or owners.get("", ""),
        "duration": duration(outcome.seconds) if outcome.began is not None else "",
        "cost": f"{total:.2f} {prices.currency}" if costs and None not in costs else "",
    }
    kfp, mlflow = public_address(os.environ.get(UI) or os.environ.get(ENDPOINT, "")), server_uri()
    links = {
        "KFP": f"{kfp.rstrip('/')}/#/runs/details/{run}" if kfp else "",
        "report": "",
        "MLflow": public_address(mlflow) if mlflow.startswith("http") else "",
    }
    # The newest report page; if the run failed, the page of the failed stage or of a negative verdict.
    for event in sorted(record, key=lambda event: float(event.body["at"]), reverse=True):
        negative = event.body.get("result", {}).get("verdict", "pass") not in ("pass", "warn")
        shown_here = outcome.state == "succeeded" or event.stage == outcome.stage or negative
        references = references_in(list(event.body.get("result", {}).values())) if shown_here else ()
        if pages := next(filter(None, (list(pages_of(store, reference)) for reference in references)), None):
            links["report"] = f"{store.address}/{pages[-1]}"
            break
    notice = Notice(
        title,
        tone,
        lines,
        {name: fact for name, fact in facts.items() if fact},
        {name: link for name, link in links.items() if link},
    )
    number = (end_of(store, run) or {"number": 1})["number"]  # A run that is tried again ends again.
    key = sha256_bytes(f"end/{run}/{number}".encode())
    fields = {
        "version": VERSION,
        "event": "run-ended",
        "run": run,
        "state": outcome.state,
        "stage": outcome.stage,
        "error": outcome.error,
        "message": "\n".join(lines),
        "idempotency_key": key,
        "facts": notice.facts,
        "links": notice.links,
    }
    receipt = f"runs/{run}/posted.{number}.json"
    posted = body_of(notice, form, fields | dict(about))
    return deliver(store, f"{about['pipeline']} {outcome.state}", posted, key, receipt, state=outcome.state)
