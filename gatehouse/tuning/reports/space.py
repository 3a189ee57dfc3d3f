"""Charts of values in the search space: parallel coordinates, one slice per parameter, contours over two."""

from collections.abc import Iterator, Sequence

from gatehouse.reports.contours import contours
from gatehouse.reports.format import Html, number
from gatehouse.reports.parallel import Bundle, parallel
from gatehouse.reports.plots import Axis, Layer, plot
from gatehouse.tuning.reports.history import axis_of_values
from gatehouse.tuning.reports.shown import Body, Dimension, Objective, Shown

_MOST_LINES = 250
_MOST_AXES = 12
_CROWD = 60
_FEWEST = 6  # Minimum number of trials for contours.


def coordinates(shown: Shown, objective: Objective) -> tuple[Html, str]:
    """Parallel coordinates of the successful trials; the best tenth is highlighted."""
    ranked = shown.ranked(objective)
    dimensions = _by_setting(shown.dimensions)[:_MOST_AXES]
    values = [value for one in ranked if (value := objective.of(one)) is not None]
    y, _ = axis_of_values(objective.metric, values, objective.sign())
    axes = [_joined(group) for group in dimensions] + [y]

    def line(trial: Body) -> list[float | None]:
        value = objective.of(trial)
        within = None if value is None else min(y.high, max(y.low, value))
        return [*(_first(group, trial) for group in dimensions), within]

    first = max(1, len(ranked) // 10)
    every = max(1, -(-len(ranked) // _MOST_LINES))
    others, top = ranked[first::every], ranked[1:first][:_MOST_LINES]
    bundles = [
        Bundle("other trials", "soft", [line(one) for one in reversed(others)], faint=True),
        Bundle("best tenth", "s0", [line(one) for one in reversed(top)], faint=len(top) > _CROWD),
        Bundle("best trial", "s1", [line(one) for one in ranked[:1]]),
    ]
    told = "Each line is a trial." + (f" Of the others, one in {every} is drawn." if every > 1 else "")
    return parallel(axes, bundles), told


def slices(shown: Shown, objective: Objective) -> Iterator[tuple[Html, str]]:
    """The value over each parameter, for the trials that have it."""
    values = [value for one in shown.succeeded if (value := objective.of(one)) is not None]
    y, _ = axis_of_values(objective.metric, values, objective.sign())
    for dimension in shown.dimensions:
        points, titles = [], []
        for one in shown.succeeded:
            at, value = dimension.of(one), objective.of(one)
            if at is not None and value is not None:
                points.append((at, value))
                titles.append(f"trial {one['number']}: {number(value)}")
        best: list[tuple[float, float]] = []
        if shown.best and (at := dimension.of(shown.best)) is not None and (v := objective.of(shown.best)) is not None:
            best = [(at, v)]
        layers = [Layer("", "s0", points, titles, faint=True), Layer("", "s1", best)]
        told = ", with the best trial in orange." if best else "."
        yield plot(layers, dimension.axis(), y), f"{objective.metric} over {dimension.title}{told}"


def contour(shown: Shown, objective: Objective, important: Sequence[tuple[str, float]]) -> tuple[Html, str] | None:
    """The value over the two most important numeric parameters that trials share; None with too few trials."""
    order = {name: at for at, (name, _) in enumerate(important)}
    best = shown.best or {"parameters": {}}
    # Parameters of the best trial come first.
    numeric = sorted(
        (one for one in shown.dimensions if one.numeric),
        key=lambda one: (one.of(best) is None, order.get(one.title, len(order))),
    )
    for x in numeric:
        for y in numeric[numeric.index(x) + 1 :]:
            points = []
            for one in shown.succeeded:
                a, b, value = x.of(one), y.of(one), objective.of(one)
                if a is not None and b is not None and value is not None:
                    points.append((a, b, value))
            if len(points) >= _FEWEST and len({point[:2] for point in points}) >= _FEWEST:
                ranked = min(points, key=lambda point: point[2] * objective.sign())
                svg = contours(points, x.axis(), y.axis(), objective.metric, ranked[:2], objective.minimize)
                told = f"{objective.metric} over {x.title}, and {y.title}, smoothed between the trials (dots)."
                return svg, told
    return None


def pareto(shown: Shown) -> Iterator[tuple[Html, str]]:
    """Each pair of objectives: the trials, the front, and its knee."""
    front = {one["number"] for one in shown.front}
    for at, one in enumerate(shown.objectives):
        for other in shown.objectives[at + 1 :]:
            placed = {each["number"]: (one.of(each) or 0.0, other.of(each) or 0.0) for each in shown.succeeded}
            x, beyond = axis_of_values(one.metric, [each[0] for each in placed.values()], one.sign())
            y, above = axis_of_values(other.metric, [each[1] for each in placed.values()], other.sign())
            on = {number_: point for number_, point in placed.items() if number_ in front}
            off = {number_: point for number_, point in placed.items() if number_ not in front}
            knee = [placed[shown.best["number"]]] if shown.best and shown.best["number"] in placed else []
            layers = [
                Layer("dominated", "soft", list(off.values()), [f"trial {key}" for key in off]),
                Layer("Pareto front", "s0", list(on.values()), [f"trial {key}" for key in on], [sorted(on.values())]),
                Layer("knee", "s1", knee),
            ]
            far = beyond + above
            told = f"{one.metric} and {other.metric}: no trial is better in both than one of the front."
            yield plot(layers, x, y), told + (f" {far:,} trials lie beyond the chart." if far else "")


def _by_setting(dimensions: Sequence[Dimension]) -> list[list[Dimension]]:
    """Parameters grouped by setting."""
    groups: dict[str, list[Dimension]] = {}
    for one in dimensions:
        groups.setdefault(one.setting, []).append(one)
    return list(groups.values())


def _joined(group: Sequence[Dimension]) -> Axis:
    """One axis for a setting, over the bounds of all its conditions."""
    if len({one.numeric for one in group}) > 1 or not group[0].numeric:
        return Axis(group[0].setting, choices=tuple(dict.fromkeys(name for one in group for name in _names(one))))
    ends = [float(one.spec[end]) for one in group for end in ("min", "max")]
    log, whole = any(one.axis().log for one in group) and min(ends) > 0, all(one.axis().whole for one in group)
    return Axis.of(group[0].setting, ends, log, whole)


def _names(dimension: Dimension) -> Sequence[str]:
    return dimension.choices or (f"{dimension.spec['min']} to {dimension.spec['max']}",)


def _first(group: Sequence[Dimension], trial: Body) -> float | None:
    for one in group:
        value = one.of(trial)
        if value is None:
            continue
        axis = _joined(group)
        if not axis.choices:
            return value
        return float(axis.choices.index(one.choices[int(value)] if one.choices else _names(one)[0]))
    return None
