"""The stage that posts a verdict to the webhook. It never fails a run, and records what could not be delivered."""

import os

from gatehouse.operations.alerting.notice import VERSION, Form, Notice, Tone, When, body_of, deliver, is_wanted
from gatehouse.reports.advice import advised
from gatehouse.reports.format import shortened
from gatehouse.store.canonical import canonical_json, sha256_bytes
from gatehouse.store.pages import pages_of
from gatehouse.store.reference import Reference
from gatehouse.store.run import RUN_ID
from gatehouse.store.stage import Effects, StageModel, stage
from gatehouse.store.store import ArtifactStore

_MOST_REASONS, _LONGEST_REASON, _SHOWN = 20, 500, 5


class AlertRequest(StageModel):
    """A verdict (empty if the stage failed and the run goes on), and when it is posted.

    Values of sensitive columns are redacted in `reasons` already. `report` is the artifact that the report shows.
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
    """Whether an alert was requested, whether the webhook accepted it, the number of attempts, and the last answer."""

    requested: bool
    delivered: bool
    attempts: int
    why: str


@stage(
    "alert",
    title="Tell of the verdict",
    effects=Effects(
        writes="the webhook", why="Posts under an idempotency key, and nothing that this run delivered before."
    ),
    section="alerts",
)
def alert(request: AlertRequest, store: ArtifactStore) -> AlertResult:
    """Post a verdict to the webhook in `GATEHOUSE_ALERT_WEBHOOK`, if `when` asks for it.

    If the webhook is not set, is down or refuses, the result says so and the run record has a warning; nothing is
    raised. A repeat within the same run does not post again what was delivered before.
    """
    if not request.verdict:
        return AlertResult(
            requested=False, delivered=False, attempts=0, why="the stage failed, and `on_failure: warn` tolerates it"
        )
    reasons, verdict = request.reasons, request.verdict
    if request.report and store.manifest(request.report).entry("anomalies.json") is not None:
        # The request holds no more reasons than fit into the output of a task; the artifact has all of them.
        severity = "warn" if verdict == "pass" else "fail"
        anomalies = tuple(
            f"{anomaly['table']}{'.' if anomaly['column'] else ''}{anomaly['column'] or ''}: {anomaly['rule']}: "
            f"expected {anomaly['expected']}, found {anomaly['observed']}"
            for anomaly in store.read_json(request.report, "anomalies.json")
            if anomaly["severity"] == severity
        )
        verdict = "warn" if verdict == "pass" and anomalies else verdict
        reasons = anomalies if len(anomalies) > len(reasons) else reasons
    tone: Tone = "good" if verdict == "pass" else "warn" if verdict == "warn" else "bad"
    if not is_wanted(request.when, failure=tone == "bad", warning=tone == "warn"):
        why = f"{verdict} is not posted when alerts are for {request.when}"
        return AlertResult(requested=False, delivered=False, attempts=0, why=why)

    run = os.environ.get(RUN_ID, "")
    identity = [request.project, request.pipeline, run, request.stage, verdict, request.report]
    key = sha256_bytes(canonical_json(identity).encode())
    links, address = {}, ""
    if request.report:
        pages = list(pages_of(store, request.report))
        address = f"{store.address}/{pages[-1]}" if pages else store.address_of(request.report)
        links["report" if pages else "artifact"] = address
    shown = [shortened(reason, _LONGEST_REASON) for reason in reasons[:_MOST_REASONS]]
    if len(reasons) > _MOST_REASONS:
        shown.append(f"and {len(reasons) - _MOST_REASONS} more in the report")
    advice = advised(reasons) if request.stage == "register" else reasons
    lines = [f"• {shortened(reason, _LONGEST_REASON)}" for reason in advice[:_SHOWN]]
    if len(reasons) > _SHOWN:
        lines.append(f"and {len(reasons) - _SHOWN} more in the report")
    title = f"Gatehouse, {request.project}: {request.stage} says {verdict}"
    about = {
        "version": VERSION,
        "project": request.project,
        "pipeline": request.pipeline,
        "run": run,
        "stage": request.stage,
        "verdict": verdict,
        "reasons": shown,
        "report": str(Reference.parse(request.report)) if request.report else "",
        "address": address,
        "idempotency_key": key,
    }
    body = body_of(Notice(title, tone, lines, links=links | {"run": run}), request.form, about)
    receipt = f"runs/{run}/alert-{key}.json" if run else ""
    delivery = deliver(store, f"{request.stage} says {verdict}", body, key, receipt, verdict=verdict)
    return AlertResult(requested=True, delivered=delivery.delivered, attempts=delivery.attempts, why=delivery.why)
