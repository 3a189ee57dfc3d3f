"""Checks of the newest rows against earlier ones: drift of features, predictions, labels; quality; performance."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import stdtrit

from gatehouse.data.splitting.parts import Part, divided_set, group_numbers, read_part
from gatehouse.evaluation.bootstrap import Units, interval, on_draws
from gatehouse.evaluation.importance import permuted_importance, sampled
from gatehouse.metrics.arithmetic import NORMAL
from gatehouse.metrics.catalogue import metric_named
from gatehouse.metrics.judging import objective_of
from gatehouse.metrics.metric import Metric, Predictions, all_on_draws
from gatehouse.metrics.tasks import TASKS
from gatehouse.monitoring import decision
from gatehouse.monitoring.decision import (
    ALARM,
    CALIBRATION,
    CHANCE,
    DATA,
    IGNORED,
    LABEL,
    MOVED,
    PERFORMANCE,
    QUALITY,
    QUIET,
    UNKNOWN,
    Finding,
)
from gatehouse.monitoring.movement import (
    TITLES,
    CategoryBins,
    Movement,
    Numbers,
    NumericBins,
    blocks_of,
    corrected,
    mean_error,
    movement,
    numbers_of,
)
from gatehouse.monitoring.rows import TIME, Gate, Rows, moments, units_of
from gatehouse.monitoring.spec import (
    CalibrationSpec,
    DataDriftSpec,
    LabelDriftSpec,
    PerformanceSpec,
    PredictionDriftSpec,
    QualitySpec,
)
from gatehouse.store.store import ArtifactStore
from gatehouse.training.predictor import Predictor

_DIGITS = 9


def data_drift(spec: DataDriftSpec, rows: Rows, min_rows: int, importance: Mapping[str, float]) -> list[Finding]:
    """The finding for all features together, then one per feature; features closest to their alarm come first.

    Blocks of the reference have at least `min_rows`. Weights sum to 1; a feature whose importance is not known,
    or negative, has weight 0, and without any positive importance all weigh the same.
    """
    positive = {name: max(importance.get(name, 0.0), 0.0) for name in rows.features}
    total = sum(positive.values())
    weights = {name: part / total if total > 0 else 1 / len(positive) for name, part in positive.items()}
    movements, empty, blocks = {}, set(), rows.blocks(min_rows)
    units = rows.units(spec.significance.unit) if spec.significance else None
    for name, kind in rows.features.items():
        column, numeric = rows.reference[name], kind == "numeric"
        bins = NumericBins.fit(column, spec.bins) if numeric else CategoryBins.fit(column, spec.categories)
        judging = spec.numeric if numeric else spec.categorical
        movements[name] = movement(bins, column, blocks, rows.current[name], judging, units)
        if not any(bins.place(side).any() for side in (column, rows.current[name])):  # Bin 0 is for what is missing.
            empty.add(name)
    chances = {name: moved.tested.chance for name, moved in movements.items() if moved.tested}
    if spec.significance and chances:
        chances = corrected(chances, spec.significance.correction)
    findings = []
    for name, kind in rows.features.items():
        measure = spec.numeric if kind == "numeric" else spec.categorical
        flat = spec.numeric_alarm if kind == "numeric" else spec.categorical_alarm
        finding = _moved(spec, DATA, name, measure, flat, movements[name], chances.get(name))
        finding = replace(finding, kind=kind, weight=round(weights[name], _DIGITS))
        if name in spec.ignore:
            why = f"a {TITLES[measure]} of {finding.value:.2f} is shown only, as `ignore` names it"
            finding = replace(finding, state=IGNORED, why=why)
        elif name in empty:
            finding = replace(finding, state=UNKNOWN, why="no row has a value")
        findings.append(finding)

    def closeness(finding: Finding) -> float:
        return (finding.value or 0.0) / (finding.alarm or 1.0)

    watched = [finding for finding in findings if finding.state not in (IGNORED, UNKNOWN)]
    if not watched:
        return [Finding(DATA, "", UNKNOWN, "there is no feature to compare"), *findings]
    whole = sum(finding.weight or 0.0 for finding in watched)
    drifted = sorted(
        (finding for finding in watched if finding.state == MOVED),
        key=lambda finding: (-(finding.weight or 0.0), -closeness(finding), finding.name),
    )
    share = round(sum(finding.weight or 0.0 for finding in drifted) / whole, _DIGITS) if whole else 0.0
    named = ", ".join(f"{finding.name} {finding.value:.2f} (alarm {finding.alarm:.2f})" for finding in drifted[:5])
    together = Finding(
        DATA,
        "",
        ALARM if share > spec.max_drifted else QUIET,
        f"expected at most {spec.max_drifted:.0%} of {'what the model goes by' if importance else 'the features'} to "
        f"drift, found {share:.0%}, with {len(drifted)} of {len(watched)} features{f': {named}' if drifted else ''}",
        measure="share that drifted",
        value=share,
        alarm=spec.max_drifted,
        weight=1.0,
    )
    return [together, *sorted(findings, key=lambda finding: (-closeness(finding), finding.name))]


def importance_of(
    store: ArtifactStore, predictor: Predictor, split: str, features: Collection[str]
) -> dict[str, float]:
    """Permutation importance by feature on up to 2,000 of the champion's test rows."""
    part = read_part(store, divided_set(store, split), split, "test", predictor.task)
    return {entry.feature: entry.value for entry in permuted_importance(predictor, sampled(part, features), features)}


def _moved(
    spec: DataDriftSpec, check: str, name: str, measure: str, flat: float, moved: Movement, chance: float | None
) -> Finding:
    """The finding for one column: above its alarm, or why it is not: its season, or chance."""
    value, alarm = moved.distances.get(measure, 0.0), _alarm(flat, moved.seasonal, spec)
    state, why = MOVED, f"a {TITLES[measure]} of {value:.2f} is above its alarm of {alarm:.2f}"
    if value <= flat:
        state, why = QUIET, f"a {TITLES[measure]} of {value:.2f} is within the alarm of {flat:.2f}"
    elif value <= alarm:
        state = decision.SEASON
        why = (
            f"a {TITLES[measure]} of {value:.2f} is above the alarm of {flat:.2f} and rang none, as its season alone "
            f"reaches {moved.seasonal:.2f}, which raised the alarm to {alarm:.2f}"
        )
    elif spec.significance and moved.tested and chance is not None and chance >= spec.significance.level:
        state = decision.CHANCE
        why = (
            f"a {TITLES[measure]} of {value:.2f} is above the alarm of {alarm:.2f} and rang none, as chance alone may "
            f"move it as far (p = {chance:.2g}): by {spec.significance.unit or 'row'}, the newest rows are worth "
            f"{moved.tested.effective:,.0f} independent ones"
        )
    return Finding(
        check,
        name,
        state,
        why,
        measure=measure,
        value=value,
        alarm=alarm,
        flat=flat,
        seasonal=moved.seasonal,
        chance=chance,
        effective=moved.tested.effective if moved.tested else None,
        distances=moved.distances,
    )


def _alarm(flat: float, seasonal: float, spec: DataDriftSpec) -> float:
    return max(flat, round(spec.seasonal_margin * seasonal, _DIGITS))


def prediction_drift(
    spec: PredictionDriftSpec, data: DataDriftSpec, rows: Rows, min_rows: int, before: Predictions, now: Predictions
) -> Finding:
    """The finding for the scores of the model, or with several classes for the predicted class.

    Bins, seasons and significance are set by `data`. `before` are the predictions for the reference.
    """
    classes = before.scores.ndim == 2
    scores = [predictions.form("classes") if classes else predictions.scores for predictions in (before, now)]
    reference, current = (pa.chunked_array([pa.array(side)]) for side in scores)
    bins = CategoryBins.fit(reference, data.categories) if classes else NumericBins.fit(reference, data.bins)
    units = rows.units(data.significance.unit) if data.significance else None
    moved = movement(bins, reference, rows.blocks(min_rows), current, "psi", units)
    name = "class that the model predicts" if classes else "score of the model"
    chance = moved.tested.chance if moved.tested else None
    finding = _moved(data, decision.PREDICTION, name, "psi", spec.alarm, moved, chance)
    return replace(finding, state=ALARM) if finding.state == MOVED else finding


def label_drift(spec: LabelDriftSpec, data: DataDriftSpec, rows: Rows, min_rows: int) -> Finding:
    """The finding for the level of the known labels: their rate, mean, or the share of the most frequent class.

    Seasons and significance are set by `data`.
    """
    level, labelled = TASKS[rows.task].level, rows.labelled
    if labelled.num_rows < min_rows:
        why = f"expected at least {min_rows:,} rows with a known label to judge, found {labelled.num_rows:,}"
        return Finding(LABEL, level.title, UNKNOWN, why)
    labels, labels_now = (pc.cast(table[rows.label], pa.float64()).to_numpy() for table in (rows.reference, labelled))
    before, now = level.by_row(labels, labels), level.by_row(labels_now, labels)
    span = moments(labelled)
    blocks = blocks_of(moments(rows.reference), span.max() - span.min(), min_rows)
    inside, mean, value = blocks >= 0, float(before.mean()), float(now.mean())
    counts, sums = np.bincount(blocks[inside]), np.bincount(blocks[inside], weights=before[inside])
    seasonal = round(float(np.abs(sums / counts - mean).max(initial=0.0)), _DIGITS)
    flat = round(spec.alarm if level.is_share else spec.mean_alarm * float(before.std()), _DIGITS)
    alarm, apart = _alarm(flat, seasonal, data), abs(value - mean)
    unit = data.significance.unit if data.significance else ""
    error = mean_error(now, units_of(labelled, unit))
    spread = math.hypot(error, mean_error(before, units_of(rows.reference, unit)))
    chance = math.erfc(apart / spread / math.sqrt(2)) if spread else float(apart == 0)
    state, why = ALARM, f"expected {mean:.3g} within {alarm:.3g}, found {value:.3g}"
    if apart <= flat:
        state = QUIET
    elif apart <= alarm:
        state = decision.SEASON
        why = (
            f"{value:.3g} is further from {mean:.3g} than the alarm of {flat:.3g} and rang none, as its season alone "
            f"reaches {seasonal:.3g}, which raised the alarm to {alarm:.3g}"
        )
    elif data.significance and chance >= data.significance.level:
        state, why = decision.CHANCE, f"{why}, which chance alone may do (p = {chance:.2g})"
    return Finding(
        LABEL,
        level.title,
        state,
        why,
        measure="share" if level.is_share else "mean",
        value=round(value, _DIGITS),
        alarm=alarm,
        flat=flat,
        seasonal=seasonal,
        expected=round(mean, _DIGITS),
        low=round(value - NORMAL * error, _DIGITS) if math.isfinite(error) else None,
        high=round(value + NORMAL * error, _DIGITS) if math.isfinite(error) else None,
        chance=round(chance, _DIGITS),
    )


def quality(spec: QualitySpec, data: DataDriftSpec, rows: Rows) -> list[Finding]:
    """One finding for each breach, or one quiet finding.

    A breach alarms only if chance does not explain it, as `data` sets significance: days differ in what they lack, so
    a window of several bad days is no broken source.
    """
    unit = data.significance.unit if data.significance else ""
    units, units_now = units_of(rows.trained, unit), units_of(rows.current, unit)
    findings, chances = [], {}
    for name, kind in rows.features.items():
        trained, current = rows.trained[name], rows.current[name]
        if kind == "numeric":
            numbers, numbers_now = numbers_of(trained), numbers_of(current)
            valid, valid_now = np.isfinite(numbers), np.isfinite(numbers_now)
            low, high = _range(numbers[valid], spec.margin)
            odd, measure, limit = (numbers_now < low) | (numbers_now > high), "outside", spec.max_outside
            what = "far beyond the least or greatest number of training"
        else:
            valid, valid_now = trained.is_valid().to_numpy(), current.is_valid().to_numpy()
            known = pc.is_in(pc.cast(current, pa.string()), value_set=pc.unique(pc.cast(trained, pa.string())))
            odd, measure, limit = ~known.to_numpy(), "new", spec.max_new
            what = "categories that training never saw"
        before = 1.0 - float(np.mean(valid))
        in_training = f"missing, {before:.1%} were in training"
        for measured_as, flags, seen, lacked, alarm, why in (
            ("missing", ~valid_now, units_now, ~valid, before + spec.max_missing_rise, in_training),
            (measure, odd[valid_now], units_now[valid_now], np.zeros(len(valid)), limit, what),
        ):
            value = float(np.mean(flags)) if len(flags) else 0.0
            chances[f"{name} {measured_as}"] = _chance_above(alarm, flags, seen, lacked, units)
            if value > alarm:
                why, place = f"{value:.1%} are {why}; the alarm is {alarm:.1%}", (QUALITY, name, ALARM)
                finding = Finding(*place, why, kind=kind, measure=measured_as)
                findings.append(replace(finding, value=round(value, _DIGITS), alarm=round(alarm, _DIGITS)))
    if data.significance:
        chances = corrected(chances, data.significance.correction)
        for number, finding in enumerate(findings):
            if (chance := chances[f"{finding.name} {finding.measure}"]) >= data.significance.level:
                why = f"{finding.why}, which chance alone may exceed (p = {chance:.2g})"
                findings[number] = replace(finding, state=CHANCE, why=why, chance=chance)
    if not findings:
        return [Finding(QUALITY, "", QUIET, f"no breach in {len(rows.features)} features")]
    return sorted(findings, key=lambda finding: (-(finding.value or 0.0), finding.name))


def _range(trained: np.ndarray, margin: float) -> tuple[float, float]:
    """The least and the greatest number of training, a share `margin` of the range further on each side."""
    if not len(trained):
        return -math.inf, math.inf
    beyond = margin * (trained.max() - trained.min())
    return float(trained.min() - beyond), float(trained.max() + beyond)


def _chance_above(alarm: float, flags: np.ndarray, units: Numbers, before: np.ndarray, units_before: Numbers) -> float:
    """The p-value that the share of flags exceeds the alarm by chance, when units are sampled; one-sided.

    Units differ as much as in the newest rows or as in training (`before`), whichever is more, because one or two days
    do not show how much days differ. The alarm has the error of training, too.
    """
    if not len(flags) or (beyond := float(np.mean(flags)) - alarm) <= 0:
        return 1.0
    now, trained = (
        error if math.isfinite(error := mean_error(side.astype(np.float64), of_side)) else 0.0
        for side, of_side in ((flags, units), (before, units_before))
    )
    as_trained = trained * math.sqrt(len(np.unique(units_before)) / len(np.unique(units)))
    spread = math.hypot(max(now, as_trained), trained)
    return math.erfc(beyond / spread / math.sqrt(2)) / 2 if spread else 0.0


CALIBRATION_ERROR = "calibration_error"
_SEED = 7
_LEVEL = 0.95


@dataclass(frozen=True)
class Measured:
    """A metric on the newest rows: its value, the bounds of its 95 % interval, and its standard error.

    `effect` is the variance when units are sampled, divided by the variance when single rows (or ranking groups) are;
    at least 1.
    """

    value: float
    low: float
    high: float
    error: float
    effect: float = 1.0

    def error_of(self, gate: Gate, units: Units) -> float:
        """Standard error of the difference to the gate.

        Rows of one unit also depended on each other at the gate, so an error that was sampled by rows there is
        multiplied by the present effect.
        """
        by_rows = gate.unit in ("row", "group") and gate.unit != units.name
        return math.hypot(self.error, gate.error * math.sqrt(self.effect if by_rows else 1.0))


def gate_of(store: ArtifactStore, evaluation: str, metric: str) -> Gate | None:
    """The value of a metric at the gate; None without an evaluation, or if it lacks the metric."""
    if not evaluation:
        return None
    value = store.read_json(evaluation, "metrics.json")["candidate"].get(metric)
    if value is None or not math.isfinite(value):
        return None
    uncertainty: dict[str, Any] = {"intervals": {}, "unit": ""}
    if store.manifest(evaluation).entry("uncertainty.json"):
        uncertainty = store.read_json(evaluation, "uncertainty.json")
    low, high = uncertainty["intervals"].get("candidate", {}).get(metric, (value, value))
    return Gate(float(value), (high - low) / (2 * NORMAL), uncertainty["unit"])


def sampling_units(part: Part, spec: PerformanceSpec) -> Units:
    """The units by which the interval is sampled."""
    return Units.of(part, spec.resample_by, TIME, "monitoring.performance.resample_by")


def measured(metric: Metric, part: Part, predictions: Predictions, spec: PerformanceSpec, units: Units) -> Measured:
    """A metric on rows with a known label, with the same kind of interval as in the evaluation.

    The bootstrap variance of n units is (n - 1) / n of the sampling variance; the standard error is corrected for this.
    """
    rows, on_draw = Units.of(part, "", TIME), all_on_draws([metric], part.labels, predictions)
    by_units, by_rows = (on_draws(on_draw, sampled, range(spec.samples), _SEED) for sampled in (units, rows))
    low, high = interval(metric, by_units, units.number, part.labels, predictions)
    error, row_error = (
        float(np.nanstd(drawn[:, 0])) * math.sqrt(sampled.number / max(sampled.number - 1, 1))
        for drawn, sampled in ((by_units, units), (by_rows, rows))
    )
    effect = max((error / row_error) ** 2, 1.0) if row_error else 1.0
    return Measured(metric.measure(part.labels, predictions), low, high, error, effect)


def performance(spec: PerformanceSpec, task: str, gate: Gate | None, part: Part, predictions: Predictions) -> Finding:
    """The finding for the metric of the gate, or another metric, on the newest rows with a known label."""
    metric, units = metric_named(spec.metric or objective_of(task)), sampling_units(part, spec)
    lacking = TASKS[task].lacks(part.labels)
    if lacking := f"the newest labels are {lacking}" if lacking else _unjudged(gate, units):
        return Finding(PERFORMANCE, metric.name, UNKNOWN, lacking, expected=gate.value if gate else None)
    assert gate is not None  # `_unjudged` says so
    now = measured(metric, part, predictions, spec, units)
    if not math.isfinite(now.value):
        why = f"it is not defined on the {len(part.labels):,} rows whose label is known"
        return Finding(PERFORMANCE, metric.name, UNKNOWN, why, expected=gate.value)
    worse, allowed = metric.worse_by(now.value, gate.value), spec.max_decay * abs(gate.value)
    chance = float(stdtrit(units.number - 1, _LEVEL)) * now.error_of(gate, units)
    limit = gate.value - allowed if metric.better == "higher" else gate.value + allowed
    values = f"{gate.value:.4f} {gate.place}, now {now.value:.4f} ({now.low:.4f} to {now.high:.4f})"
    values += f" on {len(part.labels):,} rows whose label is known"
    holds = worse + chance <= allowed
    if worse <= allowed:
        verdict = "the model holds" if holds else "no decay is seen, which chance alone may hide"
        state, why = QUIET, f"{verdict}: {values}; the alarm is {limit:.4f}"
    elif worse - chance <= allowed:
        state, why = CHANCE, f"{values} is beyond the alarm of {limit:.4f}, which chance alone may do"
    else:
        state, why = ALARM, f"the model decays: {values}; expected {limit:.4f} or better"
    return _finding(PERFORMANCE, metric, state, why, now, limit, gate, holds)


def calibration(
    spec: CalibrationSpec,
    sampling: PerformanceSpec,
    task: str,
    gate: Gate | None,
    part: Part,
    predictions: Predictions,
) -> Finding:
    """The finding for the expected calibration error; `sampling` has the settings of the interval."""
    metric, units = metric_named(CALIBRATION_ERROR), sampling_units(part, sampling)
    if task not in metric.tasks:
        return Finding(CALIBRATION, metric.name, IGNORED, f"only {', '.join(metric.tasks)} tasks have one")
    if lacking := _unjudged(gate, units):
        return Finding(CALIBRATION, metric.name, UNKNOWN, lacking, expected=gate.value if gate else None)
    assert gate is not None  # `_unjudged` says so
    now, limit = measured(metric, part, predictions, sampling, units), gate.value + spec.max_rise
    values = f"{gate.value:.4f} {gate.place}, now {now.value:.4f} (true error {now.low:.4f} to {now.high:.4f})"
    if now.value <= limit:
        state, why = QUIET, f"{values}; the alarm is {limit:.4f}"
    elif now.low <= limit:
        state, why = CHANCE, f"{values}: beyond the alarm of {limit:.4f}, which chance alone may do"
    else:
        state, why = ALARM, f"probabilities come true less often than they say: {values}; expected {limit:.4f} at most"
    return _finding(CALIBRATION, metric, state, why, now, limit, gate)


def _unjudged(gate: Gate | None, units: Units) -> str:
    """Why a metric cannot be judged: no value at the gate, or one unit, which shows no difference between units."""
    if gate is None:
        return "the champion's evaluation does not hold it"
    return "" if units.number > 1 else f"expected two units ({units.name}) with known labels at least, found one"


def _finding(
    check: str, metric: Metric, state: str, why: str, now: Measured, limit: float, gate: Gate, holds: bool = False
) -> Finding:
    return Finding(
        check,
        metric.name,
        state,
        why,
        measure=CALIBRATION_ERROR if check == CALIBRATION else metric.name,
        value=round(now.value, _DIGITS),
        alarm=round(limit, _DIGITS),
        expected=round(gate.value, _DIGITS),
        low=round(now.low, _DIGITS),
        high=round(now.high, _DIGITS),
        holds=holds,
    )


def part_of(table: pa.Table, label: str, group: str) -> Part:
    """Rows with a known label, in the form for metrics and the bootstrap. Raises as `group_numbers`."""
    groups = group_numbers(table[group], f"column {group}") if group in table.column_names else None
    labels = pc.cast(table[label], pa.float64()).to_numpy()
    return Part(np.arange(table.num_rows), table, labels, groups)
