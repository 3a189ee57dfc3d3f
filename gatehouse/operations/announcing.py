"""Announces what the store already records: the ledger of a model, and what a run delivered and found."""

import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from gatehouse.registry.explanation import act_of, provenance_of
from gatehouse.registry.ledger import CHAMPION, STAGING, Ledger, Record
from gatehouse.runtime.redaction import redacted
from gatehouse.store.announcement import Announcement, Tone, announce
from gatehouse.store.canonical import digest_of
from gatehouse.store.run import Event
from gatehouse.store.store import ArtifactStore

_TONES: dict[str, Tone] = {"fail": "bad", "warn": "warn"}
_TONES |= {"model.refused": "warn", "model.awaiting-approval": "warn", "model.rolled-back": "warn"}


def announce_ledger(store: ArtifactStore, project: str, model_name: str, days: float) -> None:
    """Announce the records of a model's ledger of the last days; without a model, none."""
    for number, record in enumerate(Ledger(store, model_name).records() if model_name else (), start=1):
        moment = str(record.provenance.get("at", ""))
        at = datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp() if moment else 0.0
        if at < time.time() - days * 86_400:
            continue
        for type_ in _types(record):
            tone = "warn" if record.override else _TONES.get(type_, "good")
            announce(store, project, _of_record(model_name, number, record, type_, tone, at))


def _types(record: Record) -> Iterator[str]:
    """The types of the events that a record is; a version in staging is one that was registered."""
    if record.kind in ("registered", "refused"):
        yield f"model.{record.kind}"
        if record.kind == "registered" and record.verdict and record.verdict.approval == "manual":
            yield "model.awaiting-approval"
    elif record.kind in ("rolled_back", "withdrawn"):
        yield "model.rolled-back"
    elif record.kind == "promoted" and record.alias != STAGING:
        yield "model.promoted" if record.alias == CHAMPION else "rollout.stepped"


def _of_record(model: str, number: int, record: Record, type_: str, tone: Tone, at: float) -> Announcement:
    act, verdict = act_of(number, record), record.verdict
    subject = f"{model}:{record.version}" if record.version else model
    state = "awaiting approval" if type_ == "model.awaiting-approval" else record.kind.replace("_", " ")
    about = {"state": state, "model_name": model, "model_version": record.version, "record": number, "by": act.by}
    about |= {"reason": redacted(act.reason), "run": str(record.provenance.get("run", "")), "alias": record.alias}
    about |= {} if record.share is None else {"share": record.share}
    if verdict:
        about |= {"model": verdict.subject.model, "evaluation": verdict.evaluation, "champion": verdict.champion}
        about |= {"verdict": verdict.verdict, "verdict_digest": verdict.short}
    return Announcement(
        type=type_,
        key=f"{type_}/{model}/{number}/{digest_of(record.model_dump(mode='json'))}",
        at=at,
        subject=subject,
        what=f"{subject} {state}",
        title=f"Gatehouse, {subject}: {act.what}{', and waits for approval' if 'awaiting' in state else ''}",
        tone=tone,
        lines=[redacted(line) for line in act.reason.split("; ") if line],
        facts={"by": act.by, "verdict": verdict.short if verdict else ""},
        about=about,
        urgent=type_ == "model.awaiting-approval",
    )


def announce_results(store: ArtifactStore, run: str, record: Iterable[Event], about: Mapping[str, str]) -> None:
    """Announce the snapshot and the drift report that a run made, where these were not there before."""
    for event in record:
        result: dict[str, Any] = event.body.get("result") or {}
        made = str(result.get({"snapshot": "snapshot", "monitor": "drift"}.get(event.stage, ""), ""))
        drifts = event.stage == "monitor"
        if not made or (drifts and result["verdict"] == "pass") or provenance_of(store, made).get("run") != run:
            continue
        fields = {"run": run, "state": result["verdict"] if drifts else "delivered", "reference": made} | dict(about)
        names = ("reasons", "decision") if drifts else ("rows", "as_of", "warnings")
        announcement = Announcement(
            type="drift.found" if drifts else "data.delivered",
            key=f"{event.stage}/{made}",
            at=float(event.body["at"]),
            subject=made,
            what=f"{about['project']} has {'drift' if drifts else 'new data'}",
            title=f"Gatehouse, {about['project']}: {'monitoring found drift' if drifts else 'new data was read'}",
            tone=_TONES.get(str(result.get("verdict")), "good"),
            lines=[redacted(str(line))[:400] for line in list(result.get("reasons", ()))[:5]],
            facts={"run": run},
            about=fields | {name: result.get(name) for name in names},
        )
        announce(store, about["project"], announcement)
