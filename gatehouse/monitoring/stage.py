"""The monitor stage: what changed since the champion was trained, how much it matters, and whether to retrain."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gatehouse.monitoring.spec import DataDriftSpec, MonitoringSpec, PerformanceSpec
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import identity_of
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    from gatehouse.metrics.metric import Predictions
    from gatehouse.monitoring.decision import Finding
    from gatehouse.monitoring.performance import Gate
    from gatehouse.monitoring.rows import Rows

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


@stage("monitor", title="Compare with the champion's data", pages={"drift-reports": "gatehouse.monitoring.report:page"})
def monitor(request: MonitorRequest, store: ArtifactStore) -> MonitorResult:
    """Check the newest rows; the artifact holds `drift.json`.

    With fewer rows than `min_rows`, or if no check of drift or performance could run, the decision is `not judged`,
    with a warning.

    Raises:
        MissingColumnError: if the newest rows lack a feature that the model was trained on.
        ConfigurationError: if a bound is not a time with a zone, or the classes of labels have other numbers.
    """
    from functools import partial

    from gatehouse.monitoring import checks, performance
    from gatehouse.monitoring.rows import predicted, read_rows
    from gatehouse.training.scoring.predictor import Predictor

    rows, data = read_rows(request, store), request.spec.data_drift
    judged = request.model and rows.current.num_rows >= request.spec.min_rows
    predictor = Predictor.load(store, request.model) if judged else None
    importance: Callable[[], Mapping[str, float]] = dict
    if data and data.weights == "importance" and predictor is not None:
        trained = (request.reference, request.split, rows.features)
        importance = partial(checks.permuted_importance, store, predictor, *trained)
    scored = None
    if predictor is not None:
        read, predict = predictor.read, predictor.predict
        now = partial(predicted, task=rows.task) if rows.logged else predict  # from the log if there is one
        scored = Scored(
            before=lambda: read(predict(rows.reference)),
            now=lambda: read(now(rows.current)),
            labelled=lambda groups: read(now(rows.labelled), groups),
            gate=partial(performance.gate_of, store, request.evaluation),
        )
    return publish_drift_report(
        request.spec,
        rows,
        list(findings(request.spec, rows, request.stale, importance, scored)),
        store,
        store.manifest(request.reference).name,
        derived_from={role: reference for role in _INPUTS if (reference := getattr(request, role))},
        configuration={"since": request.since, "until": request.until},
    )


@dataclass(frozen=True)
class Scored:
    """Predictions for the rows to compare, and a metric's earlier value by its name; computed when they are needed."""

    before: "Callable[[], Predictions]"
    now: "Callable[[], Predictions]"
    labelled: "Callable[[Any], Predictions]"
    gate: "Callable[[str], Gate | None]"


def publish_drift_report(
    spec: MonitoringSpec,
    rows: "Rows",
    judged: "list[Finding]",
    store: ArtifactStore,
    name: str,
    derived_from: Mapping[str, str],
    configuration: Mapping[str, Any],
) -> MonitorResult:
    """Decide from the findings of all checks, and publish the drift report `name`."""
    from dataclasses import asdict

    from gatehouse.monitoring.decision import ADVISORY, IGNORED, UNKNOWN, decide
    from gatehouse.monitoring.rows import ASIDE, LEFT_OUT

    decided = decide(spec, judged)
    decision, reasons = decided.decision, decided.reasons
    warnings = (*decided.warnings, *(f"not judged: {sentence}" for sentence in decided.unchecked))
    states = [finding.state for finding in judged if finding.check not in ADVISORY]
    enough = rows.current.num_rows >= spec.min_rows
    if not enough:
        few = f"rows: expected at least {spec.min_rows:,} current rows to judge, found {rows.current.num_rows:,}"
        decision, reasons, warnings = "not judged", (few,), (*warnings, few)
    elif states and all(state in (UNKNOWN, IGNORED) for state in states):
        lacking = decided.unchecked or ("no check of drift or performance could run",)
        enough, decision, reasons = False, "not judged", lacking
    advice = {ASIDE: "monitor a log of predictions with its features (`predictions`)", LEFT_OUT: "log the features"}
    unseen = tuple(
        f"{int(rows.facts[name]):,} {name}; to judge them by what needs no label, {todo}"
        for name, todo in advice.items()
        if rows.facts.get(name)
    )
    body = {
        "findings": [asdict(finding) for finding in decided.findings],
        "facts": dict(rows.facts),
        "judged": enough,
        "decision": decision,
        "triggers": list(decided.triggers),
        "reasons": list(reasons),
        "alarms": list(decided.alarms),
        "warnings": [*decided.warnings, *unseen],
        "unchecked": list(decided.unchecked),
    }
    drift = store.publish(
        "drift-reports",
        name,
        {FILE: canonical_json(body)},
        derived_from=derived_from,
        configuration={"spec": identity_of(spec), **configuration},
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


def findings(
    spec: MonitoringSpec,
    rows: "Rows",
    stale: tuple[str, ...],
    importance: "Callable[[], Mapping[str, float]]",
    scored: Scored | None,
) -> "Iterator[Finding]":
    """The findings of all enabled checks; checks that need rows judge nothing if there are too few."""
    from gatehouse.metrics.judging import objective_of
    from gatehouse.monitoring import checks, decision, performance
    from gatehouse.monitoring.decision import QUIET, UNKNOWN, Finding

    if spec.freshness:
        yield from (Finding(decision.FRESHNESS, "", decision.ALARM, why) for why in stale)
        if not stale:
            yield Finding(decision.FRESHNESS, "", QUIET, "no feature view is stale")
    if rows.current.num_rows < spec.min_rows:
        return
    data, drift = spec.data_drift or DataDriftSpec(), (spec.data_drift, spec.prediction_drift, spec.label_drift)
    if rows.reference.num_rows < spec.min_rows and any(drift):
        why = f"expected at least {spec.min_rows:,} rows of the reference `{spec.reference.window}`"
        yield Finding(decision.DATA, "", UNKNOWN, f"{why}, found {rows.reference.num_rows:,}")
    elif any(drift):
        if spec.data_drift:
            yield from checks.data_drift(data, rows, spec.min_rows, importance())
        if spec.prediction_drift and scored is None:
            yield Finding(decision.PREDICTION, "score of the model", UNKNOWN, "no model was given")
        elif spec.prediction_drift and scored is not None:
            compared = (data, rows, spec.min_rows, scored.before(), scored.now())
            yield checks.prediction_drift(spec.prediction_drift, *compared)
        if spec.label_drift:
            yield checks.label_drift(spec.label_drift, data, rows, spec.min_rows)
    if spec.quality:
        yield from checks.quality(spec.quality, rows)
    enabled = {decision.PERFORMANCE: spec.performance, decision.CALIBRATION: spec.calibration}
    lacking = "no model was given" if scored is None else ""
    if not lacking and rows.labelled.num_rows < spec.min_rows:
        lacking = f"expected at least {spec.min_rows:,} rows with a known label, found {rows.labelled.num_rows:,}"
    if lacking or scored is None:
        yield from (Finding(name, "", UNKNOWN, lacking) for name, check in enabled.items() if check)
    elif any(enabled.values()):
        part = performance.part_of(rows.labelled, rows.label, str(rows.details.get("group", "")))
        predictions = scored.labelled(part.groups)
        if spec.performance:
            gate = scored.gate(spec.performance.metric or objective_of(rows.task))
            yield performance.performance(spec.performance, rows.task, gate, part, predictions)
        if spec.calibration:
            gate = scored.gate(performance.CALIBRATION_ERROR)
            sampling = spec.performance or PerformanceSpec()
            yield performance.calibration(spec.calibration, sampling, rows.task, gate, part, predictions)
