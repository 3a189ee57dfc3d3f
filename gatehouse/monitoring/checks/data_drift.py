"""Drift of the features: how far each moved, compared with its season and with chance, and how much it matters."""

from collections.abc import Mapping

from gatehouse.monitoring.bins import CategoryBins, NumericBins
from gatehouse.monitoring.columns import TITLES, Movement, movement
from gatehouse.monitoring.finding import ALARM, CHANCE, DATA, IGNORED, MOVED, QUIET, SEASON, Finding
from gatehouse.monitoring.importance import shares_of
from gatehouse.monitoring.rows import Watched
from gatehouse.monitoring.significance import corrected
from gatehouse.monitoring.spec import DataDriftSpec, SignificanceSpec

_NUMERIC = "numeric"


def data_drift(spec: DataDriftSpec, rows: Watched, min_rows: int, importance: Mapping[str, float]) -> list[Finding]:
    """The finding for all features together, then one per feature, those closest to their alarm first.

    Args:
        spec: Settings of the check.
        rows: The rows to compare.
        min_rows: Minimum number of rows in a block of the reference.
        importance: Importance of each feature, by name; empty to weigh all equally.
    """
    weights = shares_of(importance, rows.features)
    moved, blocks = {}, rows.blocks(min_rows)
    units = rows.units(spec.significance.unit) if spec.significance else None
    for name, kind in rows.features.items():
        column = rows.reference[name]
        numeric = kind == _NUMERIC
        bins = NumericBins.fit(column, spec.bins) if numeric else CategoryBins.fit(column, spec.categories)
        judging = spec.numeric if numeric else spec.categorical
        moved[name] = movement(bins, column, blocks, rows.current[name], judging, units)
    chances = {name: each.tested.chance for name, each in moved.items() if each.tested}
    corrected_by = spec.significance.correction if spec.significance else "holm"
    chances = corrected(chances, corrected_by) if chances else {}
    found = [
        column_finding(spec, name, kind, moved[name], chances.get(name), weights.get(name, 0.0))
        for name, kind in rows.features.items()
    ]
    return _together(spec, found, "what the model goes by" if importance else "the features")


def column_finding(
    spec: DataDriftSpec, name: str, kind: str, moved: Movement, chance: float | None, weight: float
) -> Finding:
    """The finding for one feature."""
    measure = spec.numeric if kind == _NUMERIC else spec.categorical
    flat = spec.numeric_alarm if kind == _NUMERIC else spec.categorical_alarm
    value = moved.distances.get(measure, 0.0)
    alarm = alarm_of(flat, moved.seasonal, spec.seasonal_margin)
    state, why = judged(TITLES[measure], value, flat, alarm, moved, chance, spec.significance)
    if name in spec.ignore:
        state, why = IGNORED, f"a {TITLES[measure]} of {value:.2f} is shown only, as `ignore` names it"
    return Finding(
        DATA,
        name,
        state,
        why,
        kind=kind,
        measure=measure,
        value=value,
        alarm=alarm,
        flat=flat,
        seasonal=moved.seasonal,
        weight=round(weight, 9),
        chance=chance,
        effective=moved.tested.effective if moved.tested else None,
        others=moved.distances,
    )


def alarm_of(flat: float, seasonal: float, margin: float) -> float:
    """The distance above which a change counts as drift: at least the flat alarm."""
    return max(flat, round(margin * seasonal, 9))


def judged(
    title: str,
    value: float,
    flat: float,
    alarm: float,
    moved: Movement,
    chance: float | None,
    significance: SignificanceSpec | None,
) -> tuple[str, str]:
    """The state of one column, and the sentence that says why."""
    said = f"a {title} of {value:.2f}"
    if value <= flat:
        return QUIET, f"{said} is within the alarm of {flat:.2f}"
    if value <= alarm:
        return SEASON, (
            f"{said} is above the alarm of {flat:.2f} and rang none, as its season alone reaches "
            f"{moved.seasonal:.2f}, which raised the alarm to {alarm:.2f}"
        )
    if significance and chance is not None and chance >= significance.level and moved.tested:
        return CHANCE, (
            f"{said} is above the alarm of {alarm:.2f} and rang none, as chance alone may move it as far "
            f"(p = {chance:.2g}): by {significance.unit or 'row'}, the newest rows are worth "
            f"{moved.tested.effective:,.0f} independent ones"
        )
    return MOVED, f"{said} is above its alarm of {alarm:.2f}"


def _together(spec: DataDriftSpec, found: list[Finding], what: str) -> list[Finding]:
    """The finding for all features, by the share of weight that drifted, followed by the findings of each feature."""
    watched = [each for each in found if each.state != IGNORED]
    whole = sum(each.weight or 0.0 for each in watched)
    drifted = sorted(
        (each for each in watched if each.state == MOVED),
        key=lambda each: (-(each.weight or 0.0), -(each.value or 0.0) / (each.alarm or 1.0), each.name),
    )
    share = round(sum(each.weight or 0.0 for each in drifted) / whole, 9) if whole else 0.0
    named = ", ".join(f"{each.name} {each.value:.2f} (alarm {each.alarm:.2f})" for each in drifted[:5])
    expected = f"expected at most {spec.max_drifted:.0%} of {what} to drift"
    if share > spec.max_drifted:
        state = ALARM
        why = f"{expected}, found {share:.0%}, with {len(drifted)} of {len(watched)} features: {named}"
    else:
        state = QUIET
        only = f": {named}" if drifted else ""
        why = f"{expected}, found {share:.0%}, with {len(drifted)} of {len(watched)} features{only}"
    together = Finding(
        DATA, "", state, why, measure="share that drifted", value=share, alarm=spec.max_drifted, weight=1.0
    )
    ranked = sorted(found, key=lambda each: (-(each.value or 0.0) / (each.alarm or 1.0), each.name))
    return [together, *ranked]
