"""The monitor stage: what changed since the champion was trained, how much it matters, and whether to retrain."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gatehouse.monitoring.spec import DataDriftSpec, MonitoringSpec, PerformanceSpec
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import identity_of
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    from gatehouse.metrics.metric import Predictions
    from gatehouse.monitoring.decision import Finding
    from gatehouse.monitoring.rows import Rows
    from gatehouse.training.scoring.predictor import Predictor

FILE = "drift.json"
_INPUTS = ("reference", "split", "current", "model", "evaluation", "predictions", "unlabelled")


class MonitorRequest(StageModel):
    """What a model was trained on (a training set and its split), and the newest rows (another training set).

    Attributes:
        since: Only rows decided from this time on, ISO 8601; empty for all after the last train row.
        predictions: A log of predictions with their features; empty to score the newest rows with the champion.
        unlabelled: Decisions whose label is not known yet, with their features, for checks that need no label; empty
            for none.
    """

    reference: str
    split: str
    current: str
    since: str = ""
    until: str = ""
    model: str = ""
    evaluation: str = ""
    predictions: str = ""
    unlabelled: str = ""
    stale: tuple[str, ...] = ()
    spec: MonitoringSpec


class MonitorResult(StageModel):
    """The result of all checks.

    Attributes:
        verdict: `fail` if there is an alarm, also one that does not ask for a new model; `warn` if a change gave no
            alarm or something could not be judged; else `pass`.
        warnings: Changes that gave no alarm, and why; what could not be judged; how many rows were not checked, which
            does not affect the verdict.
    """

    drift: str
    decision: str
    reasons: tuple[str, ...]
    verdict: str
    alarms: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@stage(
    "monitor",
    title="Compare with the champion's data",
    pages={"drift-reports": "gatehouse.monitoring.report:page"},
)
def monitor(request: MonitorRequest, store: ArtifactStore) -> MonitorResult:
    """Check the newest rows; the artifact holds `drift.json`.

    With fewer rows than `min_rows` the decision is `not judged`, with a warning.

    Raises:
        MissingColumnError: if the newest rows lack a feature that the model was trained on.
        ConfigurationError: if a bound is not a time with a zone, or the classes of labels have other numbers.
    """
    from dataclasses import asdict

    from gatehouse.monitoring.decision import decide
    from gatehouse.monitoring.rows import ASIDE, LEFT_OUT, read_rows

    spec, rows = request.spec, read_rows(request, store)
    decided = decide(spec, [*_findings(request, store, rows)])
    decision, reasons = decided.decision, decided.reasons
    warnings = (*decided.warnings, *(f"not judged: {sentence}" for sentence in decided.unchecked))
    judged = rows.current.num_rows >= spec.min_rows
    if not judged:
        few = f"rows: expected at least {spec.min_rows:,} current rows to judge, found {rows.current.num_rows:,}"
        decision, reasons, warnings = "not judged", (few,), (*warnings, few)
    advice = {ASIDE: "monitor a log of predictions with its features (`predictions`)", LEFT_OUT: "log the features"}
    unseen = tuple(
        f"{int(rows.facts[name]):,} {name}; to judge them by what needs no label, {todo}"
        for name, todo in advice.items()
        if rows.facts.get(name)
    )
    body = {
        "findings": [asdict(finding) for finding in decided.findings],
        "facts": dict(rows.facts),
        "judged": judged,
        "decision": decision,
        "triggers": list(decided.triggers),
        "reasons": list(reasons),
        "alarms": list(decided.alarms),
        "warnings": [*decided.warnings, *unseen],
        "unchecked": list(decided.unchecked),
    }
    drift = store.publish(
        "drift-reports",
        rows.manifest.name,
        {FILE: canonical_json(body)},
        derived_from={role: reference for role in _INPUTS if (reference := getattr(request, role))},
        configuration={"spec": identity_of(spec), "since": request.since, "until": request.until},
        details={"decision": decision, "triggers": list(decided.triggers)},
    )
    return MonitorResult(
        drift=str(drift),
        decision=decision,
        reasons=reasons,
        verdict="fail" if decided.alarms else "warn" if warnings else "pass",
        alarms=decided.alarms,
        warnings=(*warnings, *unseen),
    )


def _findings(request: MonitorRequest, store: ArtifactStore, rows: "Rows") -> "Iterator[Finding]":
    """The findings of all enabled checks; checks that need rows judge nothing if there are too few."""
    from gatehouse.metrics.judging import objective_of
    from gatehouse.monitoring import checks, decision, performance
    from gatehouse.monitoring.decision import QUIET, UNKNOWN, Finding
    from gatehouse.training.scoring.predictor import Predictor

    spec = request.spec
    if spec.freshness:
        yield from (Finding(decision.FRESHNESS, "", decision.ALARM, why) for why in request.stale)
        if not request.stale:
            yield Finding(decision.FRESHNESS, "", QUIET, "no feature view is stale")
    if rows.current.num_rows < spec.min_rows:
        return
    predictor = Predictor.load(store, request.model) if request.model else None
    data, drift = spec.data_drift or DataDriftSpec(), (spec.data_drift, spec.prediction_drift, spec.label_drift)
    if rows.reference.num_rows < spec.min_rows and any(drift):
        why = f"expected at least {spec.min_rows:,} rows of the reference `{spec.reference.window}`"
        yield Finding(decision.DATA, "", UNKNOWN, f"{why}, found {rows.reference.num_rows:,}")
    elif any(drift):
        if spec.data_drift:
            weights: dict[str, float] = {}
            if data.weights == "importance" and predictor is not None:
                split = request.split
                weights = checks.permuted_importance(store, predictor, request.reference, split, rows.features)
            yield from checks.data_drift(data, rows, spec.min_rows, weights)
        if spec.prediction_drift and predictor is None:
            yield Finding(decision.PREDICTION, "score of the model", UNKNOWN, "no model was given")
        elif spec.prediction_drift and predictor is not None:
            before, now = predictor.read(predictor.predict(rows.reference)), _predictions(predictor, rows, rows.current)
            yield checks.prediction_drift(spec.prediction_drift, data, rows, spec.min_rows, before, now)
        if spec.label_drift:
            yield checks.label_drift(spec.label_drift, data, rows, spec.min_rows)
    if spec.quality:
        yield from checks.quality(spec.quality, rows)
    enabled = {decision.PERFORMANCE: spec.performance, decision.CALIBRATION: spec.calibration}
    lacking = "no model was given" if predictor is None else ""
    if not lacking and rows.labelled.num_rows < spec.min_rows:
        lacking = f"expected at least {spec.min_rows:,} rows with a known label, found {rows.labelled.num_rows:,}"
    if lacking or predictor is None:
        yield from (Finding(name, "", UNKNOWN, lacking) for name, check in enabled.items() if check)
    elif any(enabled.values()):
        part = performance.part_of(rows.labelled, rows.label, str(rows.manifest.details.get("group", "")))
        predictions = _predictions(predictor, rows, rows.labelled, part.groups)
        if spec.performance:
            gate = performance.gate_of(store, request.evaluation, spec.performance.metric or objective_of(rows.task))
            yield performance.performance(spec.performance, rows.task, gate, part, predictions)
        if spec.calibration:
            gate = performance.gate_of(store, request.evaluation, performance.CALIBRATION_ERROR)
            sampling = spec.performance or PerformanceSpec()
            yield performance.calibration(spec.calibration, sampling, rows.task, gate, part, predictions)


def _predictions(predictor: "Predictor", rows: "Rows", table: Any, groups: Any = None) -> "Predictions":
    """The champion's predictions for rows: from the log if there is one, else computed now."""
    from gatehouse.monitoring.rows import predicted

    return predictor.read(predicted(table, rows.task) if rows.logged else predictor.predict(table), groups)
