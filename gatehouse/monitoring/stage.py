"""The monitor stage: what changed since the champion was trained, how much it matters, and whether to retrain."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gatehouse.monitoring.spec import DataDriftSpec, MonitoringSpec, PerformanceSpec
from gatehouse.store.canonical import canonical_json
from gatehouse.store.declaration import Resources
from gatehouse.store.identity import identity_of
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    from gatehouse.metrics.metric import Predictions
    from gatehouse.monitoring.finding import Finding
    from gatehouse.monitoring.rows import Watched
    from gatehouse.training.scoring.predictor import Predictor

FILE = "drift.json"


class MonitorRequest(StageModel):
    """What a model was trained on (a training set and its split), and the newest rows (another training set).

    Attributes:
        reference: Training set of the champion.
        split: The champion's split.
        current: Training set with the newest rows.
        since: Only rows decided from this time on, ISO 8601; empty for all after the last train row.
        until: Only rows decided before this time; empty for all.
        model: The champion, whose predictions and performance are checked too; empty for none.
        evaluation: The champion's evaluation at its gate; empty for none.
        robustness: The champion's probes, for the importance of features; empty to measure it here.
        predictions: A log of predictions with their features; empty to score the newest rows with the champion.
        unlabelled: Decisions whose label is not known yet, with their features, for checks that need no label; empty
            for none.
        stale: For each stale view why it is stale.
        spec: Settings of the checks.
    """

    reference: str
    split: str
    current: str
    since: str = ""
    until: str = ""
    model: str = ""
    evaluation: str = ""
    robustness: str = ""
    predictions: str = ""
    unlabelled: str = ""
    stale: tuple[str, ...] = ()
    spec: MonitoringSpec


class MonitorResult(StageModel):
    """The result of all checks.

    Attributes:
        drift: Reference of the drift report.
        decision: `retrain` or `keep`; `not judged` if there are too few rows.
        reasons: Reasons for the decision.
        verdict: `fail` if there is an alarm, also one that does not ask for a new model; `warn` if a change gave no
            alarm or something could not be judged; else `pass`.
        alarms: All alarms.
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
    resources=Resources(cpu="2", memory="4G"),
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
    from gatehouse.monitoring.rows import Asked, read_rows

    spec, names = request.spec, Asked.__dataclass_fields__
    rows = read_rows(Asked(**{name: getattr(request, name) for name in names}), spec, store)
    found = decide(spec, [*_findings(request, store, rows)])
    decision, reasons = found.decision, found.reasons
    warnings = (*found.warnings, *(f"not judged: {each}" for each in found.unchecked))
    if rows.current.num_rows < spec.min_rows:
        few = f"rows: expected at least {spec.min_rows:,} current rows to judge, found {rows.current.num_rows:,}"
        decision, reasons, warnings = "not judged", (few,), (*warnings, few)
    warnings += (unseen := _unseen(rows))
    body = {
        "findings": [asdict(each) for each in found.findings],
        "facts": dict(rows.facts),
        "judged": rows.current.num_rows >= spec.min_rows,
        "decision": decision,
        "triggers": list(found.triggers),
        "reasons": list(reasons),
        "alarms": list(found.alarms),
        "warnings": [*found.warnings, *unseen],
        "unchecked": list(found.unchecked),
    }
    roles = ("reference", "split", "current", "model", "evaluation", "robustness", "predictions", "unlabelled")
    drift = store.publish(
        "drift-reports",
        rows.manifest.name,
        {FILE: canonical_json(body)},
        derived_from={role: reference for role in roles if (reference := getattr(request, role))},
        configuration={"spec": identity_of(spec), "since": request.since, "until": request.until},
        details={"decision": decision, "triggers": list(found.triggers)},
    )
    return MonitorResult(
        drift=str(drift),
        decision=decision,
        reasons=reasons,
        verdict="fail" if found.alarms else "warn" if len(warnings) > len(unseen) else "pass",
        alarms=found.alarms,
        warnings=warnings,
    )


def _unseen(rows: "Watched") -> tuple[str, ...]:
    """How many rows are not checked, and what to do."""
    from gatehouse.monitoring.rows import ASIDE, LEFT_OUT

    told = ((ASIDE, "monitor a log of predictions with its features (`predictions`)"), (LEFT_OUT, "log the features"))
    what = "to judge them by what needs no label"
    counted = ((int(rows.facts.get(name, 0)), f"{name}; {what}, {todo}") for name, todo in told)
    return tuple(f"{count:,} {why}" for count, why in counted if count)


def _findings(request: MonitorRequest, store: ArtifactStore, rows: "Watched") -> "Iterator[Finding]":
    """The findings of all enabled checks; checks that need rows judge nothing if there are too few."""
    from gatehouse.monitoring.checks.freshness import freshness
    from gatehouse.monitoring.finding import DATA, UNKNOWN, Finding

    spec = request.spec
    if spec.freshness:
        yield from freshness(request.stale)
    if rows.current.num_rows < spec.min_rows:
        return
    predictor = _predictor(request, store)
    if rows.reference.num_rows >= spec.min_rows:
        yield from _drifts(request, store, rows, predictor)
    elif any((spec.data_drift, spec.prediction_drift, spec.label_drift)):
        why = (
            f"expected at least {spec.min_rows:,} rows of the reference `{spec.reference.window}`, found "
            f"{rows.reference.num_rows:,}"
        )
        yield Finding(DATA, "", UNKNOWN, why)
    if spec.quality:
        from gatehouse.monitoring.checks.quality import quality

        yield from quality(spec.quality, rows)
    yield from _failing(request, store, rows, predictor)


def _predictor(request: MonitorRequest, store: ArtifactStore) -> "Predictor | None":
    if not request.model:
        return None
    from gatehouse.training.scoring.predictor import Predictor

    return Predictor.load(store, request.model)


def _drifts(
    request: MonitorRequest, store: ArtifactStore, rows: "Watched", predictor: "Predictor | None"
) -> "Iterator[Finding]":
    """The findings about drift of features, predictions and labels."""
    from gatehouse.monitoring.checks.data_drift import data_drift
    from gatehouse.monitoring.checks.label_drift import label_drift
    from gatehouse.monitoring.checks.prediction_drift import prediction_drift
    from gatehouse.monitoring.finding import PREDICTION, UNKNOWN, Finding

    spec, data = request.spec, request.spec.data_drift or DataDriftSpec()
    if spec.data_drift:
        yield from data_drift(data, rows, spec.min_rows, _importance(request, store, rows, predictor))
    if spec.prediction_drift and predictor is None:
        yield Finding(PREDICTION, "score of the model", UNKNOWN, "no model was given")
    elif spec.prediction_drift and predictor is not None:
        before = predictor.read(predictor.predict(rows.reference))
        yield prediction_drift(
            spec.prediction_drift, data, rows, spec.min_rows, before, _said(predictor, rows, rows.current)
        )
    if spec.label_drift:
        yield label_drift(spec.label_drift, data, rows, spec.min_rows)


def _importance(
    request: MonitorRequest, store: ArtifactStore, rows: "Watched", predictor: "Predictor | None"
) -> dict[str, float]:
    """Importance by feature name; empty to weigh all equally."""
    from gatehouse.monitoring.importance import permuted_importance, probed_importance

    if request.spec.data_drift is None or request.spec.data_drift.weights == "equal":
        return {}
    if request.robustness:
        return probed_importance(store, request.robustness)
    if predictor is None:
        return {}
    return permuted_importance(store, predictor, request.reference, request.split, rows.features)


def _failing(
    request: MonitorRequest, store: ArtifactStore, rows: "Watched", predictor: "Predictor | None"
) -> "Iterator[Finding]":
    """The findings about performance, calibration, and the detector on the daily loss."""
    from gatehouse.metrics.judging import objective_of
    from gatehouse.monitoring.checks.calibration import METRIC, calibration
    from gatehouse.monitoring.checks.detector import detector
    from gatehouse.monitoring.checks.performance import gate_of, part_of, performance
    from gatehouse.monitoring.finding import CALIBRATION, DETECTOR, PERFORMANCE, UNKNOWN, Finding
    from gatehouse.monitoring.rows import moments

    spec, group = request.spec, str(rows.manifest.details.get("group", ""))
    lacking = "no model was given" if predictor is None else ""
    if not lacking and rows.labelled.num_rows < spec.min_rows:
        lacking = f"expected at least {spec.min_rows:,} rows with a known label, found {rows.labelled.num_rows:,}"
    wanted = ((PERFORMANCE, spec.performance), (CALIBRATION, spec.calibration), (DETECTOR, spec.detector))
    if lacking or predictor is None:
        yield from (Finding(check, "", UNKNOWN, lacking) for check, switched in wanted if switched)
        return
    part = part_of(rows.labelled, rows.label, group)
    said = _said(predictor, rows, rows.labelled, part.groups)
    sampling = spec.performance or PerformanceSpec()
    if spec.performance:
        name = spec.performance.metric or objective_of(rows.task)
        yield performance(spec.performance, rows.task, gate_of(store, request.evaluation, name), part, said)
    if spec.calibration:
        gate = gate_of(store, request.evaluation, METRIC)
        yield calibration(spec.calibration, sampling, rows.task, gate, part, said)
    if spec.detector:
        after = part_of(rows.after, rows.label, group)
        says = predictor.read(predictor.predict(rows.after), after.groups)
        yield detector(spec.detector, rows.task, after, says, moments(rows.current).min())


def _said(predictor: "Predictor", rows: "Watched", table: Any, groups: Any = None) -> "Predictions":
    """The champion's predictions for rows: from the log if there is one, else computed now."""
    from gatehouse.monitoring.logs import predicted

    numbers = predicted(table, rows.task) if rows.logged else predictor.predict(table)
    return predictor.read(numbers, groups)
