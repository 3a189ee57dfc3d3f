"""The page of an evaluation: verdict, metrics, gate, curves, calibration, slices."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.evaluation.spec import Bar, ChampionRule, EvaluationSpec, GatePolicy
from gatehouse.components.metrics.catalogue.found import metric_named
from gatehouse.components.metrics.catalogue.metric import Metric
from gatehouse.components.reports.charts import Dot, Series, dot_chart, histogram, line_chart
from gatehouse.components.reports.elements import table
from gatehouse.components.reports.format import Html, percent
from gatehouse.components.reports.page import Marked, Report, Verdict

Json = Mapping[str, Any]
_ROLES = ("candidate", "champion", "baseline", "boosted trees")
_UNIT = (0.0, 1.0)
_NAMED, _DRAWN = 5, 30


def page(store: ArtifactStore, reference: str) -> str:
    """The page of an evaluation, as HTML.

    Args:
        store: Where the artifact is.
        reference: Of the evaluation.
    """
    manifest = store.manifest(reference)
    metrics, slices, curves, verdict = (
        store.read_json(reference, f"{name}.json") for name in ("metrics", "slices", "curves", "verdict")
    )
    # What both leave out has its default.
    policy = GatePolicy.model_validate(verdict["policy"])
    spec = EvaluationSpec.model_validate(manifest.configuration["spec"])
    rate = manifest.details["label_mean"]
    drawn = Report(
        f"Evaluation of {manifest.name}",
        f"{manifest.details['rows']:,} test rows, {percent(rate)} of them positive",
        _verdict(verdict, metrics, slices),
    )
    _add_metrics(drawn, metrics, policy)
    _add_gate(drawn, verdict, policy, spec)
    _add_curves(drawn, curves, rate)
    _add_slices(drawn, slices, metrics, policy, spec)
    inputs = dict(manifest.derived_from)
    drawn.section("Inputs").facts(
        {
            "candidate": inputs["model"],
            "champion": inputs.get("champion", "none yet"),
            "training set": inputs["training_set"],
            "split": inputs["split"],
        }
    )
    return drawn.html()


def _verdict(verdict: Json, metrics: Json, slices: Sequence[Json]) -> Verdict:
    """Whether the gate lets the candidate through, and what it did not look at."""
    broken = [f"{rule['name']}: expected {rule['expected']}, found {rule['found']}" for rule in _broken(verdict)]
    ours, trees = metrics["candidate"], metrics.get("boosted trees", {})
    better = [
        metric_named(name).title for name, value in trees.items() if metric_named(name).is_better(value, ours[name])
    ]
    warnings = [f"Boosted trees on the same features are better in {', '.join(better)}."] if better else []
    unjudged = [entry["name"] for entry in slices if not entry["judged"]]
    unchecked = [] if verdict["comparison"] else ["champion: there is none yet, so no rule looks at one"]
    if unjudged or not slices:
        named = f"{', '.join(unjudged[:_NAMED])}{', …' if len(unjudged) > _NAMED else ''}"
        why = f"{len(unjudged)} of {len(slices)} have too few rows, or labels that do not differ: {named}"
        unchecked.append(f"slices: {why if slices else 'evaluation.slices names no column'}")
    if not broken:
        text = f"The candidate keeps all {len(verdict['rules'])} rules of the policy."
        return Verdict("pass", text, (), tuple(warnings), tuple(unchecked), title="Passed the gate")
    todo = "train another candidate, or correct the policy where a rule is wrong; whatever was champion stays it."
    return Verdict("refused", "\n".join(broken), (), tuple(warnings), tuple(unchecked), todo, "Refused by the gate")


def _broken(verdict: Json) -> list[Json]:
    return [rule for rule in verdict["rules"] if not rule["holds"]]


def _add_metrics(drawn: Report, metrics: Json, policy: GatePolicy) -> None:
    roles = [role for role in _ROLES if role in metrics]
    rows = []
    for name in metrics["candidate"]:
        metric = metric_named(name)
        values = [metrics[role][name] for role in roles]
        cells = [Marked(value, "best" if not _beaten(metric, value, values) else "") for value in values]
        rows.append([metric.title, *cells, _bar(policy.bars.get(name))])
    told = "All on the same test rows. The baseline is logistic regression on the same features."
    unused = [] if policy.must_beat_baseline else ["the baseline"]
    unused += ["boosted trees"] if "boosted trees" in roles else []
    told += f" No rule of the gate looks at {' or '.join(unused)}." if unused else ""
    drawn.section("Metrics", told)
    drawn.table(["metric", *roles, "bar"], rows)


def _beaten(metric: Metric, value: float, values: Sequence[float]) -> bool:
    return any(metric.is_better(other, value) for other in values)


def _bar(bar: Bar | None) -> str:
    if bar is None:
        return ""
    bounds = (("≥", bar.min), ("≤", bar.max))
    return ", ".join(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)


def _add_gate(drawn: Report, verdict: Json, policy: GatePolicy, spec: EvaluationSpec) -> None:
    drawn.section("Gate", "A candidate passes if every rule of the policy holds.")
    rules = verdict["rules"]
    drawn.table(
        ["", "rule", "expected", "found"],
        [
            [
                Marked("✓\u00a0holds", "good") if rule["holds"] else "✕\u00a0broken",
                *(rule[key] for key in ("name", "expected", "found")),
            ]
            for rule in rules
        ],
        {index: "bad" for index, rule in enumerate(rules) if not rule["holds"]},
    )
    if verdict["comparison"] is None:
        beaten = [metric_named(name).title for name in policy.must_beat_baseline or ()]
        told = (
            f"compare the candidate with the baseline only, in {', '.join(beaten)}" if beaten else "look at bounds only"
        )
        drawn.note(f"There is no champion yet: the rules {told}.")
        return
    _add_comparison(drawn, verdict["comparison"], policy.champion, spec.bootstrap_samples)


def _add_comparison(drawn: Report, found: Json, rule: ChampionRule, samples: int) -> None:
    metric = metric_named(found["metric"])
    # Drawn in the metric's own direction: candidate minus champion.
    sign = 1.0 if metric.better == "lower" else -1.0
    bounds = sorted((sign * found["worst_bound"], sign * found["best_bound"]))
    mark = "" if found["worst_bound"] <= rule.tolerance else "bad"
    limits = [("equal", 0.0), *([("limit", sign * rule.tolerance)] if rule.tolerance else [])]
    drawn.figure(
        dot_chart(
            [Dot("candidate − champion", sign * found["worse_by"], bounds[0], bounds[1], mark=mark)],
            f"difference in {metric.title}",
            limits,
        ),
        f"The difference in {metric.title} ({metric.better} is better) with its one-sided {rule.confidence:.0%} "
        f"bounds from {samples:,} paired resamples of all rows.",
    )


def _add_curves(drawn: Report, curves: Json, rate: float) -> None:
    shown = {role: curves[role] for role in _ROLES if role in curves}
    figures = {
        "roc": (_roc, "ROC: the share of positive rows found, against the negative rows flagged with them."),
        "precision_recall": (_precision_recall, "Precision against recall; the dotted line is what chance gives."),
        "calibration": (
            _calibration,
            "Calibration: the rate that came true against the predicted one, in groups of equal size.",
        ),
        "histogram": (_scores, "The candidate's scores, for rows of either label."),
    }
    drawn.section("Curves").figures(
        *((draw(shown, rate), told) for name, (draw, told) in figures.items() if name in curves["candidate"])
    )


def _roc(curves: Json, rate: float) -> Html:
    chance = Series("chance", [(0, 0), (1, 1)], True)
    return line_chart([*_lines(curves, "roc"), chance], "false positive rate", "true positive rate", _UNIT, _UNIT)


def _precision_recall(curves: Json, rate: float) -> Html:
    chance = Series("chance", [(0, rate), (1, rate)], True)
    return line_chart([*_lines(curves, "precision_recall"), chance], "recall", "precision", _UNIT, _UNIT)


def _calibration(curves: Json, rate: float) -> Html:
    highest = max(max(point[:2]) for each in curves.values() for point in each["calibration"])
    limit = min(1.0, math.ceil(highest * 10 + 0.01) / 10)
    perfect = Series("perfect", [(0, 0), (limit, limit)], True)
    lines = [*_lines(curves, "calibration"), perfect]
    return line_chart(lines, "predicted probability", "observed rate", (0.0, limit), (0.0, limit))


def _scores(curves: Json, rate: float) -> Html:
    bins = curves["candidate"]["histogram"]
    edges = [*(point[0] for point in bins), 1.0]
    groups = [("label 0", [point[1] for point in bins]), ("label 1", [point[2] for point in bins])]
    return histogram(edges, groups, "score", f"share of rows in a bin of {1 / len(bins):g}")


def _lines(curves: Json, name: str) -> list[Series]:
    marked = name == "calibration"
    return [
        Series(role, [(point[0], point[1]) for point in each[name]], marked=marked and role == "candidate")
        for role, each in curves.items()
    ]


def _add_slices(drawn: Report, slices: Sequence[Json], metrics: Json, policy: GatePolicy, spec: EvaluationSpec) -> None:
    if not slices:
        drawn.section("Slices", "No slices are judged: evaluation.slices names no column.")
        return
    judged = [entry for entry in slices if entry["judged"]]
    told = f"Slices of fewer than {spec.min_slice_rows:,} rows, or whose labels do not differ, are not judged."
    drawn.section("Slices", told, f"{len(slices):,}")
    if not judged:
        drawn.note("None of the slices is judged.")
    limits = policy.slices or {}
    for name, limit in limits.items() if judged else ():
        metric = metric_named(name)
        roles = ("candidate", "champion") if "champion" in metrics else ()
        with_it = [entry for entry in judged if name in entry["metrics"]["candidate"]]
        worst = sorted(with_it, key=lambda entry: -metric.worse_by(entry["metrics"]["candidate"][name], 0.0))[:_DRAWN]
        markers = (("limit", limit), ("all rows", metrics["candidate"][name]))
        chart = dot_chart([_dot(entry, metric, limit) for entry in worst], metric.title, markers, roles)
        drawn.figure(
            chart, f"{metric.title} by slice with its 95 % interval, the worst {len(worst)} of {len(with_it)}."
        )
    if judged:
        drawn.element(_slice_table(judged, metrics, limits))
    if small := [entry for entry in slices if not entry["judged"]]:
        drawn.folded(f"{len(small):,} slices that are not judged", _slice_table(small, metrics, limits))


def _slice_table(slices: Sequence[Json], metrics: Json, limits: Mapping[str, float]) -> Html:
    named = list(dict.fromkeys(name for entry in slices for name in entry["metrics"]["candidate"]))
    shown = [(role, name) for role in ("candidate", "champion") if role in metrics for name in named]
    headers = [f"{metric_named(name).title}{' of the champion' if role == 'champion' else ''}" for role, name in shown]
    rows = [
        [
            *(entry["name"], entry["rows"], entry["label_mean"]),
            *(entry["metrics"][role].get(name) for role, name in shown),
        ]
        for entry in slices
    ]
    marks = {index: mark for index, entry in enumerate(slices) if (mark := _mark(entry, limits))}
    return table(["slice", "rows", "label rate", *headers], rows, marks, {"label rate": percent}, "Slices")


def _dot(entry: Json, metric: Metric, limit: float) -> Dot:
    low, high = entry["intervals"].get(metric.name, (math.nan, math.nan))
    champion = entry["metrics"].get("champion", {}).get(metric.name, math.nan)
    mark = _mark(entry, {metric.name: limit})
    return Dot(entry["name"], entry["metrics"]["candidate"][metric.name], low, high, champion, mark)


def _mark(entry: Json, limits: Mapping[str, float]) -> str:
    if not entry["judged"]:
        return "soft"
    values = entry["metrics"]["candidate"]
    return "bad" if any(metric_named(name).is_better(limit, values[name]) for name, limit in limits.items()) else ""
