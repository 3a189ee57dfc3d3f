"""Checks that compare the newest rows with the reference: drift of features, predictions and labels; quality."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.data.splitting.parts import divided_set, read_part
from gatehouse.metrics.arithmetic import NORMAL
from gatehouse.metrics.catalogue import metric_named
from gatehouse.metrics.judging import profile_of
from gatehouse.metrics.metric import Predictions
from gatehouse.metrics.tasks import TASKS
from gatehouse.monitoring import decision
from gatehouse.monitoring.decision import ALARM, DATA, IGNORED, LABEL, MOVED, QUALITY, QUIET, UNKNOWN, Finding
from gatehouse.monitoring.movement import (
    TITLES,
    CategoryBins,
    Movement,
    NumericBins,
    blocks_of,
    corrected,
    mean_error,
    movement,
    numbers_of,
)
from gatehouse.monitoring.rows import Rows, moments, units_of
from gatehouse.monitoring.spec import DataDriftSpec, LabelDriftSpec, PredictionDriftSpec, QualitySpec
from gatehouse.store.store import ArtifactStore
from gatehouse.training.predictor import Predictor

_DIGITS = 9
_SHUFFLED_ROWS, _SHUFFLES = 2000, 2


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


def permuted_importance(
    store: ArtifactStore, predictor: Predictor, split: str, features: Iterable[str]
) -> dict[str, float]:
    """Permutation importance by feature on about 2,000 of the champion's test rows."""
    metric = metric_named(profile_of(predictor.task).objective)
    part = read_part(store, divided_set(store, split), split, "test", predictor.task).thinned(_SHUFFLED_ROWS)
    value = metric.measure(part.labels, predictor.read(predictor.predict(part.table), part.groups))
    importance = {}
    for number, name in enumerate(features):
        random, losses = np.random.default_rng([number]), []
        for _ in range(_SHUFFLES):
            values = part.table[name].take(pa.array(random.permutation(part.table.num_rows)))
            table = part.table.set_column(part.table.column_names.index(name), name, values)
            changed = predictor.predict(table)
            losses.append(metric.worse_by(metric.measure(part.labels, predictor.read(changed, part.groups)), value))
        importance[name] = float(np.mean(losses))
    return importance


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


def quality(spec: QualitySpec, rows: Rows) -> list[Finding]:
    """One finding for each breach, or one quiet finding."""
    findings = []
    for name, kind in rows.features.items():
        trained, current = rows.trained[name], rows.current[name]
        if kind == "numeric":
            numbers, numbers_now = numbers_of(trained), numbers_of(current)
            valid, valid_now = np.isfinite(numbers), np.isfinite(numbers_now)
            share = _outside(numbers[valid], numbers_now[valid_now], spec.margin)
            measure, limit = "outside", spec.max_outside
            what = "far beyond the least or greatest number of training"
        else:
            valid, valid_now = trained.is_valid().to_numpy(), current.is_valid().to_numpy()
            values = pc.drop_null(pc.cast(current, pa.string()))
            in_training = pc.is_in(values, value_set=pc.unique(pc.cast(trained, pa.string())))
            share, measure, limit = float(pc.mean(pc.invert(in_training)).as_py() or 0.0), "new", spec.max_new
            what = "categories that training never saw"
        before, missing = 1.0 - float(np.mean(valid)), 1.0 - float(np.mean(valid_now))
        breaches = []
        if missing - before > spec.max_missing_rise:
            alarm = before + spec.max_missing_rise
            why = f"{missing:.1%} are missing, {before:.1%} were in training; the alarm is {alarm:.1%}"
            breaches.append(("missing", missing, alarm, why))
        if share > limit:
            breaches.append((measure, share, limit, f"{share:.1%} are {what}; the alarm is {limit:.0%}"))
        for measure, value, alarm, why in breaches:
            value, alarm = round(value, _DIGITS), round(alarm, _DIGITS)
            findings.append(Finding(QUALITY, name, ALARM, why, kind=kind, measure=measure, value=value, alarm=alarm))
    if not findings:
        return [Finding(QUALITY, "", QUIET, f"no breach in {len(rows.features)} features")]
    return sorted(findings, key=lambda finding: (-(finding.value or 0.0), finding.name))


def _outside(trained: np.ndarray, current: np.ndarray, margin: float) -> float:
    """The share of numbers out of the range of training, which a share `margin` of its width extends on each side."""
    if not len(trained) or not len(current):
        return 0.0
    low, high = trained.min(), trained.max()
    beyond = margin * (high - low)
    return float(np.mean((current < low - beyond) | (current > high + beyond)))
