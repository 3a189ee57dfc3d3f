"""The page of an experiment: the result and why it ended, the history of values, the search space and the trials."""

import math
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

from markupsafe import Markup

from gatehouse.reports.charts import Axis, Point, Series, line_chart
from gatehouse.reports.format import in_markdown, number
from gatehouse.reports.page import Verdict, render
from gatehouse.runtime.plural import counted
from gatehouse.store.canonical import canonical_json
from gatehouse.store.store import ArtifactStore
from gatehouse.tuning.spec import CommandParameter, Objective, ParameterSpec
from gatehouse.tuning.trial import words

Body = Mapping[str, Any]
Figure = tuple[Markup, str]

_ENDINGS = {
    "max_trial_count": "it made as many trials as max_trial_count says",
    "max_failed_trial_count": "more trials failed than max_failed_trial_count allows",
    "goal": "a trial reached the goal",
    "minutes": "budget.minutes were over",
    "cost": "budget.cost was spent",
    "steps": "budget.steps were trained",
    "generations": "every member of the population trained to its last epoch",
    "exhausted": "every configuration of the search space was tried",
    "stopped": "somebody stopped it",
}
_MOST_TRIALS, _BEST_TRIALS = 200, 25  # A table of more trials is folded below the best.
_MOST_LISTED = 10  # Trials in the Markdown.
_MOST_CURVES = 150
_FEWEST_TRIALS, _IMPORTANT = 4, 120  # An even sample at most: the time of fANOVA grows quadratically.
_TREES = 16
_MANY = 20  # From this number of values on, those that are much worse than most are outside of a chart.


@dataclass(frozen=True)
class ExperimentView:
    """An experiment: `experiment.json` and `trials.json`, and its state in words if it is not published."""

    name: str
    about: Body
    trials: Sequence[Body]
    state: str = ""

    @cached_property
    def objectives(self) -> list[Objective]:
        """The objectives, in order of priority."""
        return [
            Objective(
                metric=body["metric"], goal=body.get("goal"), direction="minimize" if body["minimize"] else "maximize"
            )
            for body in self.about["objectives"]
        ]

    @cached_property
    def parameters(self) -> list[ParameterSpec]:
        """The parameters of the search space; a setting may occur under two conditions."""
        return [CommandParameter.model_validate(body) for body in self.about["parameters"]]

    @cached_property
    def settings(self) -> list[str]:
        """The names of all settings in the search space."""
        return list(dict.fromkeys(parameter.name for parameter in self.parameters))

    @cached_property
    def succeeded(self) -> list[Body]:
        """Trials that finished training."""
        return [trial for trial in self.trials if trial["state"] == "succeeded"]

    @cached_property
    def best(self) -> Body | None:
        """The best trial, with several objectives the knee; None if no trial succeeded."""
        if (best := self.about.get("best_trial")) is not None:
            return next((trial for trial in self.trials if trial["number"] == best), None)
        ranked = self.ranked(self.objectives[0])
        return next((trial for trial in ranked if trial["feasible"]), ranked[0] if ranked else None)

    @cached_property
    def front(self) -> list[Body]:
        """The trials of the Pareto front; empty for a single objective."""
        numbers = set(self.about.get("front") or ())
        return [trial for trial in self.trials if trial["number"] in numbers] if len(self.objectives) > 1 else []

    def ranked(self, objective: Objective) -> list[Body]:
        """Successful trials, best first by an objective."""
        return sorted(self.succeeded, key=lambda trial: objective.sign * trial["values"][objective.metric])


def text_of(value: Any) -> str:
    """A parameter's value as text: numbers with four digits; `trials.json` has all digits."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else canonical_json(value)


def ending(ended: str) -> str:
    """Why an experiment ended, in words."""
    return _ENDINGS.get(ended, ended)


def subtitle(shown: ExperimentView) -> str:
    """A one-line description of the experiment."""
    states = Counter(str(trial["state"]).replace("_", " ") for trial in shown.trials)
    counts = ", ".join(f"{count:,} {state}" for state, count in states.items())
    stopping = shown.about["early_stopping"]
    pruned = f", early stopping by {stopping['name']}" if stopping else ""
    return f"{counted(len(shown.trials), 'trial')} ({counts}), algorithm {shown.about['algorithm']['name']}{pruned}"


def result_line(shown: ExperimentView) -> str:
    """The best trial and why the experiment ended, in sentences."""
    number, values = shown.about["best_trial"], words(shown.best["values"] if shown.best else {})
    front = f"is the knee of the Pareto front of {len(shown.front):,} trials"
    place = front if shown.front else f"of {len(shown.trials):,} is best"
    return f"Trial {number} {place}: {values}. The experiment ended because {ending(shown.about['ended'])}."


def failure_lines(shown: ExperimentView) -> list[str]:
    """The number of failed trials by reason, and whether the result is provisional."""
    reasons = Counter(trial["reason"] for trial in shown.trials if trial["state"] == "failed")
    lines = [f"{counted(count, 'trial')}: {reason}" for reason, count in reasons.most_common()]
    if again := len(shown.about["provisional"]):
        lines.append(
            f"The result is provisional: {counted(again, 'trial')} failed for a reason outside of the search, such as "
            "a time limit, memory or a cluster. The next run tries again."
        )
    return lines


def page(store: ArtifactStore, reference: str) -> str:
    """The page of a published experiment, as HTML."""
    return drawn(_published(store, reference))


def _published(store: ArtifactStore, reference: str) -> ExperimentView:
    about, trials = store.read_json(reference, "experiment.json"), store.read_json(reference, "trials.json")
    return ExperimentView(store.manifest(reference).name, about, trials)


def drawn(shown: ExperimentView) -> str:
    """The page of an experiment that ended with a best trial, as HTML."""
    by_number = {trial["number"]: trial for trial in shown.trials}
    lineage = [by_number[shown.about["best_trial"]]]
    while (parent := lineage[0]["parent"]) is not None:
        lineage.insert(0, by_number[parent])
    spaces = []
    for objective in shown.objectives if len(shown.succeeded) > 1 else ():
        of = f" of {objective.metric}" if len(shown.objectives) > 1 else ""
        spaces.append((of, importances(shown, objective), list(_slices(shown, objective))))
    word = "warn" if shown.about["provisional"] else "pass"
    return render(
        "experiment.html",
        f"Experiment for {shown.name}",
        subtitle(shown),
        Verdict(word, "", [result_line(shown)], failure_lines(shown), title="Parameters found"),
        shown=shown,
        best=shown.best,
        lineage=lineage,
        fronts=list(_fronts(shown)) if shown.front else [],
        history=[_history(shown, objective) for objective in shown.objectives],
        curves=[_curves(shown)] if any(trial["intermediate"] for trial in shown.trials) else [],
        spaces=spaces,
        ranked=shown.ranked(shown.objectives[0])[:_BEST_TRIALS],
        most_trials=_MOST_TRIALS,
        text_of=text_of,
        words=words,
    )


def write_markdown(store: ArtifactStore, reference: str, path: str) -> None:
    """Write `markdown` to a file; an empty reference means that nothing was searched."""
    nothing = "No hyperparameters were searched.\n"
    Path(path).write_text(markdown(store, reference) if reference else nothing)


def write_trials(store: ArtifactStore, reference: str, path: str) -> None:
    """Write all trials of an experiment as Parquet, a row each: number, state, reason, parameters and metrics."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def column(values: list[object]) -> list[object]:
        """Values of one kind, or their texts: a parameter's choices may be of several."""
        kinds = {float if type(value) is int else type(value) for value in values if value is not None}
        if len(kinds) <= 1 and kinds <= {bool, float, str}:
            return values
        return [value if value is None or isinstance(value, str) else canonical_json(value) for value in values]

    trials = store.read_json(reference, "trials.json")
    kinds = ("parameters", "metrics")
    names = {kind: sorted({name for trial in trials for name in trial[kind]}) for kind in kinds}
    columns = {name: [trial[name] for trial in trials] for name in ("number", "state", "reason")}
    for kind in kinds:
        columns |= {f"{kind[:-1]}.{name}": column([trial[kind].get(name) for trial in trials]) for name in names[kind]}
    pq.write_table(pa.table(columns), path)


def markdown(store: ArtifactStore, reference: str) -> str:
    """The result of an experiment, and a table of its best trials, as Markdown for the UI of KFP."""
    shown = _published(store, reference)
    head = ["trial", *(objective.metric for objective in shown.objectives), *shown.settings]
    rows = [head, ["---"] * len(head)]
    for trial in shown.ranked(shown.objectives[0])[:_MOST_LISTED]:
        parameters = trial["parameters"]
        values = [number(trial["values"][objective.metric]) for objective in shown.objectives]
        settings = [text_of(parameters[name]) if name in parameters else "" for name in shown.settings]
        rows.append([str(trial["number"]), *values, *settings])
    lines = [f"- {in_markdown(line)}" for line in (result_line(shown), *failure_lines(shown))]
    table = [f"| {' | '.join(map(in_markdown, row))} |" for row in rows]
    return "\n".join(
        [f"# Experiment for {in_markdown(shown.name)}", "", in_markdown(subtitle(shown)), "", *lines, "", *table, ""]
    )


def axis_of_values(objective: Objective, values: Sequence[float]) -> tuple[Axis, int]:
    """An axis for most values, and the number of values that are so much worse that they are outside of it."""
    losses = sorted(value * objective.sign for value in values)
    reach = math.inf
    if len(losses) >= _MANY:
        low, high = (losses[round(share * (len(losses) - 1))] for share in (0.25, 0.75))
        reach = high + 4 * (high - low) if high > low else math.inf
    near = [loss * objective.sign for loss in losses if loss <= reach]
    return Axis.of(objective.metric, near), len(losses) - len(near)


def _titles(values: Mapping[int, float]) -> list[str]:
    return [f"trial {trial}: {number(value)}" for trial, value in values.items()]


def _history(shown: ExperimentView, objective: Objective) -> Figure:
    """The value of each trial in order, and the best so far."""
    values = {trial["number"]: trial["values"][objective.metric] for trial in shown.succeeded}
    y, outside = axis_of_values(objective, list(values.values()))
    steps: list[Point] = []
    for trial, value in values.items():
        if not steps or value * objective.sign < steps[-1][1] * objective.sign:
            steps += [*([(trial, steps[-1][1])] if steps else []), (trial, value)]
    steps.append((shown.trials[-1]["number"], steps[-1][1]))
    series = [
        Series("best so far", steps, style="s1"),
        Series("trial", dots=list(values.items()), titles=_titles(values), style="s0", faint=len(values) > 300),
    ]
    if objective.goal is not None:
        series.insert(
            0, Series("goal", [(0.0, objective.goal), (float(len(shown.trials)), objective.goal)], style="s2")
        )
    x = Axis("trial", -0.5, max(1.0, len(shown.trials) - 0.5), whole=True)
    rest = f" {outside:,} lie beyond the chart." if outside else ""
    return line_chart(series, x, y), f"The value of every trial, and the best until then.{rest}"


def _curves(shown: ExperimentView) -> Figure:
    """The values of the first objective that trials reported by step; of many trials an even sample."""
    objective = shown.objectives[0]

    def sampled(trials: Sequence[Body]) -> list[list[Point]]:
        some = trials[:: max(1, -(-len(trials) // _MOST_CURVES))]
        return [[(step, value) for step, value in trial["intermediate"]] for trial in some if trial["intermediate"]]

    best = sampled([trial for trial in shown.trials if trial is shown.best])
    ended = sampled([trial for trial in shown.ranked(objective) if trial is not shown.best])
    stopped = sampled([trial for trial in shown.trials if trial["state"] == "early_stopped"])
    points = [point for curve in (*best, *ended, *stopped) for point in curve]
    y, _ = axis_of_values(objective, [value for _, value in points])
    series = [
        Series("best trial", lines=best, style="s1"),
        Series("stopped early", dots=[curve[-1] for curve in stopped], lines=stopped, style="soft"),
        Series("trained to the end", lines=ended, style="s0", faint=True),
    ]
    marks, stopping = [], shown.about["early_stopping"]
    if stopping and stopping["name"] == "HyperbandPruner":
        step, factor = (stopping["options"].get(*option) for option in (("min_resource", 1), ("reduction_factor", 3)))
        while step < shown.about["steps_per_trial"]:
            marks.append((float(step), f"rung at step {step}"))
            step *= factor
    x = Axis("step", 0, max(step for step, _ in points) * 1.03, whole=True)
    rungs = " Dashed: the rungs at which trials are compared." if marks else ""
    return line_chart(series, x, y, marks), f"Validation values by step.{rungs}"


def _place(parameter: ParameterSpec, trial: Body) -> float | None:
    """The value of a parameter in a trial as a number, that of a choice is its index; None if the trial has none."""
    chosen = trial["parameters"]
    used = parameter.name in chosen and parameter.is_open(chosen)
    return parameter.internal(chosen[parameter.name]) if used else None


def _slices(shown: ExperimentView, objective: Objective) -> Iterator[Figure]:
    """The value over each parameter, for the trials that have it."""
    values = {trial["number"]: trial["values"][objective.metric] for trial in shown.succeeded}
    y, _ = axis_of_values(objective, list(values.values()))
    for parameter in shown.parameters:
        places = {trial["number"]: _place(parameter, trial) for trial in shown.succeeded}
        points = {trial: (x, values[trial]) for trial, x in places.items() if x is not None}
        best = [point for trial, point in points.items() if trial == shown.about["best_trial"]]
        titles = _titles({trial: value for trial, (_, value) in points.items()})
        series = [
            Series("", dots=best, style="s1"),
            Series("", dots=list(points.values()), titles=titles, style="s0", faint=True),
        ]
        if parameter.type == "categorical":
            x_axis = Axis(parameter.name, choices=tuple(map(text_of, parameter.choices)))
        else:
            ends = [parameter.min or 0.0, parameter.max or 0.0]
            x_axis = Axis.of(parameter.name, ends, parameter.log, parameter.type == "int")
        with_best = ", with the best trial in orange." if best else "."
        yield line_chart(series, x_axis, y), f"{objective.metric} over {parameter.title}{with_best}"


def _fronts(shown: ExperimentView) -> Iterator[Figure]:
    """Each pair of objectives: the trials, the front, and its knee."""
    front = {trial["number"] for trial in shown.front}
    for first, second in combinations(shown.objectives, 2):
        points = {
            trial["number"]: (trial["values"][first.metric], trial["values"][second.metric])
            for trial in shown.succeeded
        }
        x, _ = axis_of_values(first, [point[0] for point in points.values()])
        y, _ = axis_of_values(second, [point[1] for point in points.values()])
        on, off = ([point for trial, point in points.items() if (trial in front) is side] for side in (True, False))
        series = [
            Series("knee", dots=[points[shown.about["best_trial"]]], style="s1"),
            Series("Pareto front", sorted(on), dots=on, style="s0"),
            Series("dominated", dots=off, style="soft"),
        ]
        text = f"{first.metric} and {second.metric}: no trial is better in both than the front."
        yield line_chart(series, x, y), text


def importances(shown: ExperimentView, objective: Objective) -> tuple[str, list[tuple[str, float]]] | None:
    """A description, and the importance of each parameter that all trials have, largest first; None if there is none.

    Importances are the shares of the variance of the objective by fANOVA (Hutter et al. 2014).
    """
    trials = shown.succeeded[:: -(-len(shown.succeeded) // _IMPORTANT) or 1]
    if len(trials) < _FEWEST_TRIALS:
        return None
    import optuna

    from gatehouse.tuning.samplers import distribution_of

    study = optuna.create_study(direction="minimize" if objective.minimize else "maximize")
    parameters = [parameter for parameter in shown.parameters if not parameter.when]
    for trial in trials:
        places = {parameter.name: _place(parameter, trial) for parameter in parameters}
        params = {name: place for name, place in places.items() if place is not None}
        distributions = {parameter.name: distribution_of(parameter) for parameter in parameters}
        value = trial["values"][objective.metric]
        used = {name: distributions[name] for name in params}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=used, value=value))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evaluator = optuna.importance.FanovaImportanceEvaluator(n_trees=_TREES, seed=0)
            values = optuna.importance.get_param_importances(study, evaluator=evaluator)
    except (ValueError, RuntimeError):  # Optuna raises these for too few trials, or for no variance.
        return None
    if not any(value > 0 for value in values.values()):
        return None
    rest = ", of the parameters that all trials have." if len(parameters) < len(shown.parameters) else "."
    caption = f"Share of the variance of {objective.metric} over {len(trials):,} trials (fANOVA){rest}"
    return caption, [(name, float(value)) for name, value in values.items()]
