"""The monitor stage: what changed since the champion was trained, how much it matters, and whether to retrain."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gatehouse.errors import ConfigurationError
from gatehouse.monitoring.rows import Comparison, MonitorRequest, Scored, predicted, read_rows
from gatehouse.monitoring.spec import DataDriftSpec, PerformanceSpec
from gatehouse.store.builder_code import builder_code
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import identity_of
from gatehouse.store.reference import Reference
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    from gatehouse.monitoring.decision import Finding

FILE = "drift.json"
_INPUTS = ("current", "model", "baseline", "evaluation", "predictions", "unlabelled")


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
    outside=lambda request: builder_code(request.spec.performance.metric if request.spec.performance else ""),
)
def monitor(request: MonitorRequest, store: ArtifactStore) -> MonitorResult:
    """Check the newest rows against those of a champion, or of any table; the artifact holds `drift.json`.

    With fewer rows than `min_rows`, a log that cannot be right, or if no check of drift or performance could run, the
    decision is `not judged`, with a warning.

    Raises:
        MissingColumnError: if the newest rows lack a feature that the champion was trained on.
        ConfigurationError: if there is not one champion or one baseline, a bound is not a time with a zone, the classes
            of labels have other numbers, or columns of tables are missing or have other kinds of values.
        ScoringError: if performance is measured on tables, and a row with a label has no score that the task allows.
    """
    from gatehouse.monitoring.tables import compared_tables

    if bool(request.model) == bool(request.baseline):
        raise ConfigurationError(
            "Expected the champion (`model`) or a table of earlier rows (`baseline`), found "
            f"{'both' if request.model else 'neither'}."
        )
    compared = compared_tables(request, store) if request.baseline else _compared_with_champion(request, store)
    judged = [*findings(request, compared), *compared.remarks]
    return _published(request, compared, judged, store)


def _compared_with_champion(request: MonitorRequest, store: ArtifactStore) -> Comparison:
    from functools import cache, partial

    from gatehouse.monitoring import checks
    from gatehouse.training.predictor import Predictor

    rows, data = read_rows(request, store), request.spec.data_drift

    @cache
    def champion() -> Predictor:
        return Predictor.load(store, request.model)

    def now(table: Any) -> Any:
        return predicted(table, rows.task) if rows.logged else champion().predict(table)

    scored = Scored(
        before=lambda: champion().read(champion().predict(rows.reference)),
        now=lambda: champion().read(now(rows.current)),
        labelled=lambda groups: champion().read(now(rows.labelled), groups),
        gate=partial(checks.gate_of, store, request.evaluation),
    )
    if not (data and data.weights == "importance"):
        return Comparison(request.spec, rows, scored)
    split = store.manifest(request.model).derived_from["split"]
    return Comparison(
        *(request.spec, rows, scored), lambda: checks.importance_of(store, champion(), split, rows.features)
    )


def _published(
    request: MonitorRequest, compared: Comparison, judged: "Sequence[Finding]", store: ArtifactStore
) -> MonitorResult:
    """Decide from the findings of all checks, and publish the drift report."""
    from dataclasses import asdict

    from gatehouse.monitoring.decision import ADVISORY, IGNORED, UNKNOWN, decide
    from gatehouse.monitoring.rows import FEATURELESS_ROWS, UNLABELLED_ROWS

    spec, rows = compared.spec, compared.rows
    decided = decide(spec, judged)
    decision, reasons = decided.decision, decided.reasons
    warnings = (*decided.warnings, *(f"not judged: {sentence}" for sentence in decided.unchecked))
    states = [finding.state for finding in judged if finding.check not in ADVISORY]
    enough = not rows.problem and rows.current.num_rows >= spec.min_rows
    if not enough:
        few = f"rows: expected at least {spec.min_rows:,} current rows to judge, found {rows.current.num_rows:,}"
        few = rows.problem or few
        decision, reasons, warnings = "not judged", (few,), (*warnings, few)
    elif all(state in (UNKNOWN, IGNORED) for state in states):
        lacking = decided.unchecked or (f"no check of drift or performance {'could run' if states else 'is on'}",)
        enough, decision, reasons = False, "not judged", lacking
    advice = {
        UNLABELLED_ROWS: "monitor a log of predictions with its features (`predictions`)",
        FEATURELESS_ROWS: "log the features",
    }
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
    inputs = {role: reference for role in _INPUTS if (reference := getattr(request, role))}
    if request.model:
        made_from = store.manifest(request.model).derived_from
        inputs |= {"reference": made_from["training_set"], "split": made_from["split"]}
    drift = store.publish(
        "drift-reports",
        Reference.parse(request.baseline or inputs["reference"]).name,
        {FILE: canonical_json(body)},
        derived_from=inputs,
        configuration=identity_of(request),
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


def findings(request: MonitorRequest, compared: Comparison) -> "Iterator[Finding]":
    """The findings of all enabled checks; checks that need rows judge nothing if there are too few."""
    from gatehouse.metrics.judging import objective_of
    from gatehouse.monitoring import checks, decision
    from gatehouse.monitoring.decision import QUIET, UNKNOWN, Finding

    spec, rows, scored = compared.spec, compared.rows, compared.scored
    if spec.freshness:
        yield from (Finding(decision.FRESHNESS, "", decision.ALARM, why) for why in request.stale)
        if not request.stale:
            yield Finding(decision.FRESHNESS, "", QUIET, "no feature view is stale")
    if rows.problem or rows.current.num_rows < spec.min_rows:
        return
    data, drift = spec.data_drift or DataDriftSpec(), (spec.data_drift, spec.prediction_drift, spec.label_drift)
    if rows.reference.num_rows < spec.min_rows and any(drift):
        why = f"expected at least {spec.min_rows:,} rows of the reference `{spec.reference.window}`"
        yield Finding(decision.DATA, "", UNKNOWN, f"{why}, found {rows.reference.num_rows:,}")
    elif any(drift):
        if spec.data_drift:
            yield from checks.data_drift(data, rows, spec.min_rows, compared.importance())
        if spec.prediction_drift and scored is None:
            yield Finding(decision.PREDICTION, "score of the model", UNKNOWN, "no model was given")
        elif spec.prediction_drift and scored is not None:
            sides = (data, rows, spec.min_rows, scored.before(), scored.now())
            yield checks.prediction_drift(spec.prediction_drift, *sides)
        if spec.label_drift:
            yield checks.label_drift(spec.label_drift, data, rows, spec.min_rows)
    if spec.quality:
        yield from checks.quality(spec.quality, data, rows)
    enabled = {decision.PERFORMANCE: spec.performance, decision.CALIBRATION: spec.calibration}
    lacking = "no model was given" if scored is None else ""
    if not lacking and rows.labelled.num_rows < spec.min_rows:
        lacking = f"expected at least {spec.min_rows:,} rows with a known label, found {rows.labelled.num_rows:,}"
    if lacking or scored is None:
        yield from (Finding(name, "", UNKNOWN, lacking) for name, check in enabled.items() if check)
    elif any(enabled.values()):
        part = checks.part_of(rows.labelled, rows.label, str(rows.details.get("group", "")))
        predictions = scored.labelled(part.groups)
        if spec.performance:
            gate = scored.gate(spec.performance.metric or objective_of(rows.task))
            yield checks.performance(spec.performance, rows.task, gate, part, predictions)
        if spec.calibration:
            gate = scored.gate(checks.CALIBRATION_ERROR)
            sampling = spec.performance or PerformanceSpec()
            yield checks.calibration(spec.calibration, sampling, rows.task, gate, part, predictions)
