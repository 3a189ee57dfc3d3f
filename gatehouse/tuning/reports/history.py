"""Charts of an experiment's values: by trial, with the best so far, and by step within each trial."""

import math
from collections.abc import Sequence

from gatehouse.reports.elements import cell, table
from gatehouse.reports.format import Html, number
from gatehouse.reports.plots import Axis, Layer, plot
from gatehouse.tuning.reports.shown import EARLY_STOPPED, Body, Objective, Shown, finite

_MOST_CURVES = 150
_NAMED = 12
_MANY = 20  # From this number of values on, some may be outside the chart.


def axis_of_values(label: str, values: Sequence[float], sign: int) -> tuple[Axis, int]:
    """An axis for the relevant values, and the number of values that are so much worse that they are outside it.

    Args:
        label: Label of the axis.
        values: The values.
        sign: Factor that makes smaller values better.
    """
    ordered = sorted(value * sign for value in values if math.isfinite(value))
    reach = math.inf
    if len(ordered) >= _MANY:
        low, high = (ordered[round(share * (len(ordered) - 1))] for share in (0.25, 0.75))
        reach = high + 4 * (high - low) if high > low else math.inf
    near = [value * sign for value in ordered if value <= reach]
    return Axis.of(label, near), len(ordered) - len(near)


def history(shown: Shown, objective: Objective) -> tuple[Html, str]:
    """The value of each trial in order, and the best so far."""
    points = [(float(one["number"]), value) for one in shown.succeeded if (value := objective.of(one)) is not None]
    stopped = [
        (float(one["number"]), last)
        for one in shown.trials
        if one["state"] == EARLY_STOPPED and (last := _last(one)) is not None
    ]
    if len(shown.objectives) > 1:
        stopped = []
    y, beyond = axis_of_values(objective.metric, [value for _, value in [*points, *stopped]], objective.sign())
    steps: list[tuple[float, float]] = []
    for at, value in points:
        if not steps or value * objective.sign() < steps[-1][1] * objective.sign():
            steps += [(at, steps[-1][1])] if steps else []
            steps.append((at, value))
    if steps:
        steps.append((float(shown.trials[-1]["number"]), steps[-1][1]))
    layers = [
        Layer(
            "stopped early, at its last step", "soft", stopped, [f"trial {at:.0f}: {number(v)}" for at, v in stopped]
        ),
        Layer("trial", "s0", points, [f"trial {at:.0f}: {number(v)}" for at, v in points], faint=len(points) > 300),
        Layer("best so far", "s1", lines=[steps] if steps else []),
    ]
    if objective.goal is not None:
        ends = (0.0, float(len(shown.trials)))
        layers.append(Layer("goal", "s2", lines=[[(at, float(objective.goal)) for at in ends]]))
    x = Axis("trial", -0.5, max(1.0, len(shown.trials) - 0.5), whole=True)
    said = f" {beyond:,} lie beyond the chart." if beyond else ""
    return plot(layers, x, y), f"The value of every trial, and the best until then.{said}"


def curves(shown: Shown, objective: Objective) -> tuple[Html, str]:
    """The values that trials reported by step, and the rungs at which early stopping compares them."""
    lines = {one["number"]: _curve(one) for one in shown.trials}
    ended = [one["number"] for one in shown.ranked(objective) if len(lines[one["number"]]) > 1]
    stopped = [one["number"] for one in shown.trials if one["state"] == EARLY_STOPPED and lines[one["number"]]]
    best = shown.best["number"] if shown.best and len(lines.get(shown.best["number"], ())) > 1 else None
    others = [at for at in ended if at != best]
    drawn = {"stopped": _sampled(stopped), "ended": _sampled(others)}
    shown_lines = [*drawn["stopped"], *drawn["ended"], *([] if best is None else [best])]
    y, _ = axis_of_values(objective.metric, [v for at in shown_lines for _, v in lines[at]], objective.sign())
    last = max((step for line in lines.values() for step, _ in line), default=1.0)
    ends = [lines[at][-1] for at in drawn["stopped"]]
    layers = [
        Layer("trained to the end", "s0", lines=[lines[at] for at in drawn["ended"]], faint=True),
        Layer("", "soft", lines=[lines[at] for at in drawn["stopped"]]),
        Layer("stopped early", "bad", ends, [f"trial {at}" for at in drawn["stopped"]]),
        Layer("best trial", "s1", lines=[lines[best]] if best is not None else []),
    ]
    marks = [(float(step), f"rung at step {step}") for step in rungs(shown)]
    left = len(stopped) + len(others) - sum(map(len, drawn.values()))
    told = "Validation values by step." + (" Dashed: the rungs at which trials are compared." if marks else "")
    told += f" {left:,} of {len(stopped) + len(others):,} trials are left out, evenly by rank." if left else ""
    return plot(layers, Axis("step", 0, last * 1.03, whole=True), y, marks), told


def rungs(shown: Shown) -> list[int]:
    """The steps at which hyperband or successive halving compares trials; none for another early stopping."""
    stopping = shown.about.get("early_stopping") or {}
    if stopping.get("name") not in ("hyperband", "successive_halving"):
        return []
    step, factor = (
        int(stopping.get(name) or default) for name, default in (("min_resource", 1), ("reduction_factor", 3))
    )
    found = []
    while 0 < step < int(shown.about.get("steps_per_trial") or 0) and factor > 1:
        found.append(step)
        step *= factor
    return found


def stops(shown: Shown) -> Html:
    """By step: how many trials reported it, how many were stopped there, and the first of these."""
    reached: dict[int, int] = {}
    stopped: dict[int, list[int]] = {}
    for one in shown.trials:
        steps = [int(step) for step, _ in one.get("intermediate") or ()]
        for step in steps:
            reached[step] = reached.get(step, 0) + 1
        if one["state"] == EARLY_STOPPED and steps:
            stopped.setdefault(steps[-1], []).append(one["number"])
    known = set(rungs(shown))
    rows = [
        [
            step,
            "yes" if step in known else "",
            reached[step],
            len(stopped.get(step, ())),
            cell(_some(stopped.get(step, ())), 80),
        ]
        for step in sorted(reached)
        if step in known or step in stopped
    ]
    if not known:
        return table(
            ["step", "trials that reported it", "stopped there", "which"], [[row[0], *row[2:]] for row in rows]
        )
    return table(["step", "rung", "trials that reported it", "stopped there", "which"], rows)


def _some(numbers: Sequence[int]) -> str:
    """The first numbers, and how many more there are."""
    more = [f"and {len(numbers) - _NAMED:,} more"] if len(numbers) > _NAMED else []
    return ", ".join([*map(str, numbers[:_NAMED]), *more])


def _curve(trial: Body) -> list[tuple[float, float]]:
    return [(float(step), v) for step, value in trial.get("intermediate") or () if (v := finite(value)) is not None]


def _last(trial: Body) -> float | None:
    curve = _curve(trial)
    return curve[-1][1] if curve else None


def _sampled(numbers: Sequence[int]) -> list[int]:
    """An even sample of limited size."""
    every = math.ceil(len(numbers) / _MOST_CURVES) or 1
    return list(numbers[::every])
