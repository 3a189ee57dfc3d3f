"""The page of an experiment: the result and why it ended, the history of values, the search space and the trials."""

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from markupsafe import Markup

from gatehouse.reports.axes import Axis, Point
from gatehouse.reports.charts import Series, line_chart
from gatehouse.reports.format import number
from gatehouse.reports.page import Verdict, render
from gatehouse.store.store import ArtifactStore
from gatehouse.tuning.reports.importance import importances
from gatehouse.tuning.reports.shown import (
    EARLY_STOPPED,
    Body,
    Objective,
    Shown,
    failure_lines,
    finite,
    result_lines,
    subtitle,
    text_of,
    values_of,
)

Figure = tuple[Markup, str]

_MOST_TRIALS, _BEST_TRIALS = 200, 25  # Of more trials the table shows the best ones, and is folded below them.
_MOST_LISTED = 10  # Trials in the Markdown.
_MOST_CURVES = 150
_MANY = 20  # From this number of values on, those that are much worse than most are outside of a chart.


def page(store: ArtifactStore, reference: str) -> str:
    """The page of a published experiment, as HTML."""
    about, trials = store.read_json(reference, "experiment.json"), store.read_json(reference, "trials.json")
    return drawn(Shown(store.manifest(reference).name, about, trials))


def drawn(shown: Shown) -> str:
    """The page of an experiment as HTML, also of one that is running or was interrupted."""
    best, several = shown.best, len(shown.objectives) > 1
    lineage = [best] if best else []
    by_number = {trial["number"]: trial for trial in shown.trials}
    while lineage and (parent := lineage[0].get("parent")) is not None:
        lineage.insert(0, by_number[parent])
    spaces = []
    for objective in shown.objectives if len(shown.succeeded) > 1 else ():
        of = f" of {objective.metric}" if several else ""
        spaces.append((of, importances(shown, objective), list(_slices(shown, objective))))
    reported = any(trial.get("intermediate") for trial in shown.trials)
    return render(
        "experiment.html",
        f"Experiment for {shown.name}",
        subtitle(shown),
        _verdict(shown),
        shown=shown,
        best=best,
        lineage=lineage,
        fronts=list(_fronts(shown)) if several and shown.succeeded else [],
        history=[_history(shown, objective) for objective in shown.objectives] if shown.trials else [],
        curves=[_curves(shown, shown.objectives[0])] if reported else [],
        spaces=spaces,
        ranked=shown.ranked(shown.objectives[0])[:_BEST_TRIALS],
        most_trials=_MOST_TRIALS,
        facts=_facts(shown),
        text_of=text_of,
        values_of=values_of,
        finite=finite,
    )


def write_markdown(store: ArtifactStore, reference: str, path: str) -> None:
    """Write `markdown` to a file; an empty reference means that nothing was searched."""
    nothing = "No hyperparameters were searched: the project has no section `tuning`.\n"
    Path(path).write_text(markdown(store, reference) if reference else nothing)


def markdown(store: ArtifactStore, reference: str) -> str:
    """The result of an experiment, and a table of its best trials, as Markdown for the UI of KFP."""
    about, trials = store.read_json(reference, "experiment.json"), store.read_json(reference, "trials.json")
    shown = Shown(store.manifest(reference).name, about, trials)
    head = ["trial", *(objective.metric for objective in shown.objectives), *shown.settings]
    rows = [head, ["---"] * len(head)]
    for trial in shown.ranked(shown.objectives[0])[:_MOST_LISTED]:
        parameters = trial["parameters"]
        values = [number(objective.of(trial)) for objective in shown.objectives]
        settings = [text_of(parameters[name]) if name in parameters else "" for name in shown.settings]
        rows.append([str(trial["number"]), *values, *settings])
    lines = [f"- {line}" for line in (*result_lines(shown), *failure_lines(shown))]
    table = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([f"# Experiment for {shown.name}", "", subtitle(shown), "", *lines, "", *table, ""])


def _verdict(shown: Shown) -> Verdict:
    """The verdict of an experiment, also of one without a successful trial, and of a running one."""
    ended, lines, warnings = shown.state == "ended", result_lines(shown), failure_lines(shown)
    if shown.best is None:
        todo = "Read the reasons in the table of trials, and the log of a trial." if ended and shown.trials else ""
        word, title = ("fail", "No parameters found") if ended else ("warn", shown.state)
        return Verdict(word, lines[0], (), warnings, todo=todo, title=title)
    final = ended and not shown.about.get("provisional") and shown.best.get("feasible", True)
    title = "Parameters found" if ended else shown.state
    return Verdict("pass" if final else "warn", "", lines, warnings, title=title)


def axis_of_values(label: str, values: Sequence[float], sign: int) -> tuple[Axis, int]:
    """An axis for most values, and the number of values that are so much worse that they are outside of it.

    `sign` is the factor that makes smaller values better.
    """
    ordered = sorted(value * sign for value in values if math.isfinite(value))
    reach = math.inf
    if len(ordered) >= _MANY:
        low, high = (ordered[round(share * (len(ordered) - 1))] for share in (0.25, 0.75))
        reach = high + 4 * (high - low) if high > low else math.inf
    near = [value * sign for value in ordered if value <= reach]
    return Axis.of(label, near), len(ordered) - len(near)


def _values(trials: Sequence[Body], objective: Objective) -> dict[int, float]:
    """The value of each trial that has one, by its number."""
    return {trial["number"]: value for trial in trials if (value := objective.of(trial)) is not None}


def _titles(values: Sequence[tuple[int, float]]) -> list[str]:
    return [f"trial {trial}: {number(value)}" for trial, value in values]


def _history(shown: Shown, objective: Objective) -> Figure:
    """The value of each trial in order, and the best so far."""
    values = list(_values(shown.succeeded, objective).items())
    stopped = [
        (trial["number"], curve[-1][1])
        for trial in shown.trials
        if trial["state"] == EARLY_STOPPED and len(shown.objectives) == 1 and (curve := _curve(trial))
    ]
    y, outside = axis_of_values(objective.metric, [value for _, value in [*values, *stopped]], objective.sign())
    steps: list[Point] = []
    for trial, value in values:
        if not steps or value * objective.sign() < steps[-1][1] * objective.sign():
            steps += [*([(trial, steps[-1][1])] if steps else []), (trial, value)]
    if steps:
        steps.append((shown.trials[-1]["number"], steps[-1][1]))
    series = [
        Series("best so far", steps, style="s1"),
        Series("trial", dots=values, titles=_titles(values), style="s0", faint=len(values) > 300),
        Series("stopped early, at its last step", dots=stopped, titles=_titles(stopped), style="soft"),
    ]
    if objective.goal is not None:
        goal = float(objective.goal)
        series.insert(0, Series("goal", [(0.0, goal), (float(len(shown.trials)), goal)], style="s2"))
    x = Axis("trial", -0.5, max(1.0, len(shown.trials) - 0.5), whole=True)
    rest = f" {outside:,} lie beyond the chart." if outside else ""
    return line_chart(series, x, y), f"The value of every trial, and the best until then.{rest}"


def _curve(trial: Body) -> list[Point]:
    """The finite values that a trial reported, by step."""
    reported = ((float(step), finite(value)) for step, value in trial.get("intermediate") or ())
    return [(step, value) for step, value in reported if value is not None]


def _curves(shown: Shown, objective: Objective) -> Figure:
    """The values that trials reported by step, and the rungs at which early stopping compares them."""
    curves = {trial["number"]: _curve(trial) for trial in shown.trials}
    best = shown.best["number"] if shown.best else None
    ended = [trial["number"] for trial in shown.ranked(objective) if trial["number"] != best]
    ended = [trial for trial in ended if len(curves[trial]) > 1]
    stopped = [trial["number"] for trial in shown.trials if trial["state"] == EARLY_STOPPED and curves[trial["number"]]]
    some_ended, some_stopped = (trials[:: max(1, -(-len(trials) // _MOST_CURVES))] for trials in (ended, stopped))
    best_curve = curves.get(best, []) if best is not None else []
    ends = [curves[trial][-1] for trial in some_stopped]
    drawn = [best_curve, *(curves[trial] for trial in [*some_ended, *some_stopped])]
    y, _ = axis_of_values(objective.metric, [value for curve in drawn for _, value in curve], objective.sign())
    last = max((step for curve in curves.values() for step, _ in curve), default=1.0)
    series = [
        Series("best trial", best_curve, style="s1"),
        Series("stopped early", dots=ends, titles=[f"trial {trial}" for trial in some_stopped], style="bad"),
        Series("", lines=[curves[trial] for trial in some_stopped], style="soft"),
        Series("trained to the end", lines=[curves[trial] for trial in some_ended], style="s0", faint=True),
    ]
    marks, stopping = [], shown.about.get("early_stopping") or {}
    if stopping.get("name") in ("hyperband", "successive_halving"):
        step, factor = int(stopping.get("min_resource") or 1), int(stopping.get("reduction_factor") or 3)
        while 0 < step < int(shown.about.get("steps_per_trial") or 0) and factor > 1:
            marks.append((float(step), f"rung at step {step}"))
            step *= factor
    caption = "Validation values by step." + (" Dashed: the rungs at which trials are compared." if marks else "")
    if left_out := len(ended) + len(stopped) - len(some_ended) - len(some_stopped):
        caption += f" {left_out:,} of {len(ended) + len(stopped):,} trials are left out, evenly by rank."
    return line_chart(series, Axis("step", 0, last * 1.03, whole=True), y, marks), caption


def _slices(shown: Shown, objective: Objective) -> Iterator[Figure]:
    """The value over each parameter, for the trials that have it."""
    values = _values(shown.succeeded, objective)
    y, _ = axis_of_values(objective.metric, list(values.values()), objective.sign())
    for dimension in shown.dimensions:
        places = {trial["number"]: dimension.of(trial) for trial in shown.succeeded}
        points = {trial: (x, values[trial]) for trial, x in places.items() if x is not None and trial in values}
        best = [points[shown.best["number"]]] if shown.best and shown.best["number"] in points else []
        titles = _titles([(trial, point[1]) for trial, point in points.items()])
        series = [
            Series("", dots=best, style="s1"),
            Series("", dots=list(points.values()), titles=titles, style="s0", faint=True),
        ]
        with_best = ", with the best trial in orange." if best else "."
        yield line_chart(series, dimension.axis(), y), f"{objective.metric} over {dimension.title}{with_best}"


def _fronts(shown: Shown) -> Iterator[Figure]:
    """Each pair of objectives: the trials, the front, and its knee."""
    front = {trial["number"] for trial in shown.front}
    for first, second in combinations(shown.objectives, 2):
        points = {trial["number"]: (first.of(trial) or 0.0, second.of(trial) or 0.0) for trial in shown.succeeded}
        x, _ = axis_of_values(first.metric, [point[0] for point in points.values()], first.sign())
        y, _ = axis_of_values(second.metric, [point[1] for point in points.values()], second.sign())
        on = {trial: point for trial, point in points.items() if trial in front}
        off = {trial: point for trial, point in points.items() if trial not in front}
        knee = [points[shown.best["number"]]] if shown.best and shown.best["number"] in points else []
        front_titles, titles = ([f"trial {trial}" for trial in group] for group in (on, off))
        series = [
            Series("knee", dots=knee, style="s1"),
            Series("Pareto front", sorted(on.values()), dots=list(on.values()), titles=front_titles, style="s0"),
            Series("dominated", dots=list(off.values()), titles=titles, style="soft"),
        ]
        yield (
            line_chart(series, x, y),
            f"{first.metric} and {second.metric}: no trial is better in both than the front.",
        )


def _facts(shown: Shown) -> dict[str, Any]:
    """How the experiment searched, without what is empty."""

    def listed(settings: Body) -> str:
        return ", ".join(f"{name} {text_of(value)}" for name, value in settings.items())

    def named(body: Body) -> str:
        settings = listed({name: value for name, value in body.items() if name != "name" and value is not None})
        return f"{body['name']} ({settings})" if settings else str(body["name"])

    about = shown.about
    facts = {
        "algorithm": named(about["algorithm"]),
        "early stopping": named(about.get("early_stopping") or {"name": "none"}),
        "settings of a trial": listed(about.get("trial_settings") or {}),
        "steps of a full trial": about.get("steps_per_trial"),
        "warm start": ", ".join(map(str, about.get("warm_start") or ())),
    }
    return {name: value for name, value in facts.items() if value not in (None, "")}
