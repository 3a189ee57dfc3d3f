"""The alert stage: tells a webhook of a verdict. It never fails a run, and never hides that nobody was told."""

import os
from typing import Any

from gatehouse.operations.alerting.notice import Form, Notice, When, body_of
from gatehouse.reports.advice import advised
from gatehouse.reports.format import shortened
from gatehouse.store.canonical import canonical_json, sha256_bytes
from gatehouse.store.pages import pages_of
from gatehouse.store.reference import Reference
from gatehouse.store.run import RUN_ID
from gatehouse.store.stage import Effects, Resources, StageModel, stage
from gatehouse.store.store import ArtifactStore

VERSION = 1
_MOST_REASONS = 20
_LONGEST_REASON = 500
_SHOWN = 5


class AlertRequest(StageModel):
    """A verdict, and when somebody wants to hear of it.

    Attributes:
        project: The project.
        pipeline: The pipeline that runs.
        stage: The stage that judged.
        verdict: What it said: `pass`, `warn`, `fail` or another word for a refusal.
        reasons: Why, as the stage gave them: redacted already where a column is sensitive.
        report: Reference of the artifact that the report shows.
        when: `fail` for every verdict that is a refusal; `warn` for these and for warnings; `always`; or `never`.
        form: What the webhook takes: `generic`, `slack` or `teams`.
    """

    project: str
    pipeline: str
    stage: str
    verdict: str
    reasons: tuple[str, ...] = ()
    report: str = ""
    when: When = "fail"
    form: Form = "generic"


class AlertResult(StageModel):
    """Whether an alert was wanted, whether the webhook accepted it, after how many attempts, and if not, why."""

    wanted: bool
    delivered: bool
    attempts: int
    why: str


@stage(
    "alert",
    title="Tell of the verdict",
    effects=Effects(
        writes="the webhook", why="Posts under an idempotency key, and nothing that this run delivered before."
    ),
    resources=Resources(cpu="500m", memory="512M", minutes=5),
    section="alerts",
)
def alert(request: AlertRequest, store: ArtifactStore) -> AlertResult:
    """Post a verdict to the webhook that `GATEHOUSE_ALERT_WEBHOOK` names, where `when` asks for it.

    If the webhook is not set, is down or refuses, the result says so and the run record has a warning; nothing is
    raised. A repeat within the same run does not post again what was delivered before.
    """
    from gatehouse.operations.alerting.webhook import tell

    if not request.verdict:
        return AlertResult(wanted=False, delivered=False, attempts=0, why="the stage failed, and the project lets it")
    found = _anomalies(store, request)
    said = "warn" if request.verdict == "pass" and found else request.verdict
    if not _is_wanted(request.when, said):
        return AlertResult(
            wanted=False, delivered=False, attempts=0, why=f"{said} is not told when {request.when} is asked for"
        )
    body = payload(request, said, found if len(found) > len(request.reasons) else request.reasons, store)
    key, run = idempotency_key(request, said), os.environ.get(RUN_ID, "")
    receipt = _receipt(run, key) if run else ""
    told = tell(store, f"{request.stage} says {said}", body, key, receipt, verdict=said)
    return AlertResult(wanted=True, delivered=told.delivered, attempts=told.attempts, why=told.why)


def payload(request: AlertRequest, said: str, reasons: tuple[str, ...], store: ArtifactStore) -> dict[str, Any]:
    """What is posted: in the generic form for programs, and with `text` for people.

    Args:
        request: The verdict.
        said: The verdict as it is told: `warn` for a pass with warnings.
        reasons: Why.
        store: Where the report is.
    """
    run = os.environ.get(RUN_ID, "")
    kept = [shortened(reason, _LONGEST_REASON) for reason in reasons[:_MOST_REASONS]]
    if len(reasons) > _MOST_REASONS:
        kept.append(f"and {len(reasons) - _MOST_REASONS} more in the report")
    label, place = _place(store, request.report) if request.report else ("", "")
    told = advised(reasons) if request.stage == "register" else reasons
    lines = [f"• {shortened(reason, _LONGEST_REASON)}" for reason in told[:_SHOWN]]
    if len(kept) > _SHOWN:
        lines.append(f"and {len(reasons) - _SHOWN} more in the report")
    notice = Notice(
        f"Gatehouse, {request.project}: {request.stage} says {said}",
        "good" if said == "pass" else "warn" if said == "warn" else "bad",
        lines,
        links={name: value for name, value in ((label, place), ("run", run)) if value},
    )
    about = {
        "version": VERSION,
        "project": request.project,
        "pipeline": request.pipeline,
        "run": run,
        "stage": request.stage,
        "verdict": said,
        "reasons": kept,
        "report": str(Reference.parse(request.report)) if request.report else "",
        "address": place,
        "idempotency_key": idempotency_key(request, said),
    }
    return body_of(notice, request.form, about)


def idempotency_key(request: AlertRequest, said: str) -> str:
    """What identifies one verdict that is told, so that a repeat can be told from another."""
    run = os.environ.get(RUN_ID, "")
    identity = [request.project, request.pipeline, run, request.stage, said, request.report]
    return sha256_bytes(canonical_json(identity).encode())


def _place(store: ArtifactStore, reference: str) -> tuple[str, str]:
    """Where a person reads on: the report that was drawn of an artifact, or the artifact where none was."""
    drawn = list(pages_of(store, reference))
    return ("report", f"{store.address}/{drawn[-1]}") if drawn else ("artifact", store.address_of(reference))


def _is_wanted(when: str, said: str) -> bool:
    if when in ("always", "never"):
        return when == "always"
    return said != "pass" and (when == "warn" or said != "warn")


def _anomalies(store: ArtifactStore, request: AlertRequest) -> tuple[str, ...]:
    """What a validation that passed warns of, or why another failed, one line each; none for other artifacts.

    The reasons of the request are cut to what a task's output holds, so the artifact is asked.
    """
    if not request.report or store.manifest(request.report).entry("anomalies.json") is None:
        return ()
    found: list[dict[str, Any]] = store.read_json(request.report, "anomalies.json")
    severity = "warn" if request.verdict == "pass" else "fail"
    return tuple(_line(one) for one in found if one["severity"] == severity)


def _line(anomaly: dict[str, Any]) -> str:
    place = f"{anomaly['table']}.{anomaly['column']}" if anomaly["column"] else anomaly["table"]
    return f"{place}: {anomaly['rule']}: expected {anomaly['expected']}, found {anomaly['observed']}"


def _receipt(run: str, key: str) -> str:
    return f"runs/{run}/alert-{key}.json"
