"""The page of an evaluation: verdict, metrics, gate, curves, calibration, slices."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gatehouse.data.splitting.parts import class_names
from gatehouse.evaluation.gate import Rule
from gatehouse.evaluation.group_measures import FAIRNESS
from gatehouse.evaluation.reports.beside import add_cost, add_robustness
from gatehouse.evaluation.reports.fairness import add_fairness
from gatehouse.evaluation.reports.figures import figures
from gatehouse.evaluation.reports.intervals import add_comparisons, best_of, estimate
from gatehouse.evaluation.reports.intervals import told as told_of
from gatehouse.evaluation.reports.slices import by_loss
from gatehouse.evaluation.rules.bars import Bar
from gatehouse.evaluation.rules.champion import ChampionRule
from gatehouse.evaluation.spec import EvaluationSpec, GatePolicy
from gatehouse.metrics.catalogue import metric_named
from gatehouse.metrics.metric import Metric
from gatehouse.metrics.tasks.found import TASKS
from gatehouse.reports.advice import advised
from gatehouse.reports.elements import table
from gatehouse.reports.format import Html, percent
from gatehouse.reports.page import Marked, Report, Verdict
from gatehouse.reports.row_charts import Dot, dot_chart
from gatehouse.store.store import ArtifactStore

Json = Mapping[str, Any]
_ROLES = ("candidate", "champion", "baseline", "constant")
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
    uncertainty = store.read_json(reference, "uncertainty.json") if manifest.entry("uncertainty.json") else None
    policy = GatePolicy.model_validate(verdict["policy"])
    spec = EvaluationSpec.model_validate(manifest.configuration["spec"])
    level = manifest.details["level"]
    drawn = Report(
        f"Evaluation of {manifest.name}",
        f"{manifest.details['rows']:,} test rows, {level['title']} {_level(level, level['value'])}",
        _verdict(verdict, slices),
    )
    _add_metrics(drawn, metrics, uncertainty, policy)
    _add_gate(drawn, verdict, policy, spec)
    shown = {role: curves[role] for role in _ROLES if role in curves}
    drawn.section("Curves").figures(*figures(shown, level["value"]))
    if "confusion" in curves["candidate"]:
        classes = class_names(store.manifest(manifest.derived_from["training_set"]).details)
        _add_confusion(drawn, curves["candidate"]["confusion"], classes)
    task = TASKS[manifest.details["task"]]
    _add_slices(drawn, slices, metrics, policy, spec, level, task.counted)
    if manifest.entry(FAIRNESS):
        add_fairness(drawn, store.read_json(reference, FAIRNESS), policy.fairness)
    inputs = dict(manifest.derived_from)
    add_robustness(drawn, store, inputs)
    add_cost(drawn, store, inputs["model"], verdict.get("cost"))
    drawn.section("Inputs").facts(
        {
            "candidate": inputs["model"],
            "champion": inputs.get("champion", "none yet"),
            "training set": inputs["training_set"],
            "split": inputs["split"],
        }
    )
    return drawn.html()


def _verdict(verdict: Json, slices: Sequence[Json]) -> Verdict:
    """Whether the gate lets the candidate through, and what it did not look at."""
    rules = [Rule(**rule) for rule in verdict["rules"]]
    broken = advised([str(rule) for rule in rules if rule.refuses])
    warnings = list(verdict["warnings"])
    unjudged = [entry["name"] for entry in slices if not entry["judged"]]
    unchecked = [] if verdict["comparison"] else ["champion: there is none yet, so no rule looks at one"]
    if unjudged or not slices:
        named = f"{', '.join(unjudged[:_NAMED])}{', …' if len(unjudged) > _NAMED else ''}"
        why = f"{len(unjudged)} of {len(slices)} have too few rows, or labels that do not differ: {named}"
        unchecked.append(f"slices: {why if slices else 'evaluation.slices names no column'}")
    if left := [name for name in ("training age", "drift", "lineage") if name not in {*map(_family, rules)}]:
        unchecked.append(f"{', '.join(left)}: the policy asks for none of it")
    if verdict["verdict"] == "inconclusive":
        todo = (
            "judge on more test rows, or find features that tell more, or state a tolerance that these can show; "
            "whatever was champion stays it."
        )
        title = "The test rows cannot tell"
        return Verdict("warn", "\n".join(broken), (), tuple(warnings), tuple(unchecked), todo, title)
    if not broken:
        kept = sum(rule.holds for rule in rules)
        told = f"{kept} of the {len(rules)} rules of the policy, and the others only warn"
        text = f"The candidate keeps {f'all {kept} rules of the policy' if kept == len(rules) else told}."
        return Verdict("pass", text, (), tuple(warnings), tuple(unchecked), title="Passed the gate")
    todo = "train another candidate, or correct the policy where a rule is wrong; whatever was champion stays it."
    return Verdict("refused", "\n".join(broken), (), tuple(warnings), tuple(unchecked), todo, "Refused by the gate")


def _family(rule: Rule) -> str:
    return "drift" if rule.name.startswith("drift ") else rule.name


def _level(level: Json, value: float) -> str:
    return percent(value) if level["is_share"] else f"{value:.4g}"


def _add_metrics(drawn: Report, metrics: Json, uncertainty: Json | None, policy: GatePolicy) -> None:
    roles = [role for role in _ROLES if role in metrics]
    intervals, effect = (uncertainty[key] if uncertainty else {} for key in ("intervals", "design_effect"))
    rows = []
    for name in metrics["candidate"]:
        metric = metric_named(name)
        values = [metrics[role][name] for role in roles]
        cells = best_of(
            metric, values, [estimate(metric, metrics[role][name], intervals.get(role, {}).get(name)) for role in roles]
        )
        bar = [_bar(policy.bars.get(name))] if policy.bars else []
        rows.append([metric.title, *cells, *bar, *([effect.get(name)] if effect else [])])
    told = (
        "All on the same test rows. The baseline is a linear model on the same features, the constant one without any; "
        "both were fitted on the parts of the split that the candidate learned from."
    )
    unused = [] if policy.must_beat_baseline else ["the baseline"]
    unused += ["the constant"] if "constant" in roles else []
    told += f" No rule of the gate looks at {' or '.join(unused)}." if unused else ""
    none = "It has no intervals: this evaluation was made before they were measured."
    drawn.section("Metrics", f"{told} {told_of(uncertainty) if uncertainty else none}")
    drawn.table(["metric", *roles, *(["bar"] if policy.bars else []), *(["design effect"] if effect else [])], rows)
    for metric in map(metric_named, metrics["candidate"]):
        if metric.caveat:
            drawn.note(f"{metric.title}: {metric.caveat}.")
    if uncertainty and effect:
        drawn.note(
            f"The design effect is the variance over draws by {uncertainty['unit']} over that of single draws: as many "
            "times fewer independent rows tell as much."
        )


def _bar(bar: Bar | None) -> str:
    if bar is None:
        return ""
    bounds = (("≥", bar.min), ("≤", bar.max))
    return ", ".join(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)


def _add_gate(drawn: Report, verdict: Json, policy: GatePolicy, spec: EvaluationSpec) -> None:
    drawn.section("Gate", "A candidate passes if every rule of the policy holds that does not only warn.")
    rules = [Rule(**rule) for rule in verdict["rules"]]
    terms = [name for name in ("owner", "reason") if any(getattr(rule, name) for rule in rules)]
    drawn.table(
        ["", "rule", "expected", "found", *terms],
        [[_outcome(rule), *(getattr(rule, name) for name in ("name", "expected", "found", *terms))] for rule in rules],
        {index: "bad" for index, rule in enumerate(rules) if rule.refuses and not rule.inconclusive},
    )
    if verdict["comparison"] is None:
        beaten = [metric_named(name).title for name in policy.must_beat_baseline or ()]
        others = [f"the baseline in {', '.join(beaten)}"] if beaten else []
        others += ["guessing"] if policy.better_than_guessing is not None else []
        told = f"compare the candidate only with {' and with '.join(others)}" if others else "look at bounds only"
        drawn.note(f"There is no champion yet: the rules {told}.")
        return
    _add_comparison(drawn, verdict["comparison"], policy.champion, spec.bootstrap_samples)
    add_comparisons(drawn, verdict.get("comparisons", {}), verdict["comparison"]["metric"], policy.champion)


def _outcome(rule: Rule) -> Marked | str:
    if rule.holds:
        return Marked("✓\u00a0holds", "good")
    if rule.warns:
        return Marked("!\u00a0warns", "warn")
    return Marked("?\u00a0cannot tell", "warn") if rule.inconclusive else "✕\u00a0broken"


def _add_comparison(drawn: Report, found: Json, rule: ChampionRule, samples: int) -> None:
    metric = metric_named(found["metric"])
    # Drawn in the metric's own direction: candidate minus champion.
    sign = 1.0 if metric.better == "lower" else -1.0
    bounds = sorted((sign * found["worst_bound"], sign * found["best_bound"]))
    tolerated = rule.tolerated(found["champion"])
    mark = "" if found["worst_bound"] <= tolerated else "bad"
    limits = [("equal", 0.0), *([("limit", sign * tolerated)] if tolerated else [])]
    drawn.figure(
        dot_chart(
            [Dot("candidate − champion", sign * found["worse_by"], bounds[0], bounds[1], mark=mark)],
            f"difference in {metric.title}",
            limits,
        ),
        f"The difference in {metric.title} ({metric.better} is better) with its one-sided {rule.confidence:.0%} "
        f"bounds from {samples:,} paired resamples of all rows.",
    )


def _add_confusion(drawn: Report, pairs: Sequence[Sequence[int]], classes: Sequence[str]) -> None:
    """Shares of each label's rows by predicted class."""
    counts = {(label, predicted): rows for label, predicted, rows in pairs}
    named = sorted({number for pair in counts for number in pair} - {-1})
    numbers = [*named, *([-1] if any(-1 in pair for pair in counts) else [])]
    titles = {number: classes[number] if number < len(classes) else f"class {number}" for number in named}
    titles[-1] = "others"
    drawn.section(
        "Confusion", "Of the candidate: the share of each label's rows by the class that is predicted, right in bold."
    )
    rows: list[list[Any]] = []
    for label in numbers:
        total = sum(counts.get((label, predicted), 0) for predicted in numbers)
        shares = [counts.get((label, predicted), 0) / total if total else None for predicted in numbers]
        cells = [
            Marked(share, "best") if label == other else share for other, share in zip(numbers, shares, strict=True)
        ]
        rows.append([titles[label], total, *cells])
    columns = [f"→ {titles[number]}" for number in numbers]
    drawn.table(["label", "rows", *columns], rows, formats=dict.fromkeys(columns, percent))


def _add_slices(
    drawn: Report,
    slices: Sequence[Json],
    metrics: Json,
    policy: GatePolicy,
    spec: EvaluationSpec,
    level: Json,
    counted: str,
) -> None:
    if not slices:
        drawn.section("Slices", "No slices are judged: evaluation.slices names no column.")
        return
    judged = [entry for entry in slices if entry["judged"]]
    told = f"Slices of fewer than {spec.min_slice_rows:,} {counted}s, or whose labels do not differ, are not judged."
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
        cut = f", the worst {len(worst)} of {len(with_it)}" if len(worst) < len(with_it) else ""
        drawn.figure(chart, f"{metric.title} by slice with its 95 % interval{cut}.")
    if judged:
        drawn.element(_slice_table(by_loss(judged), metrics, limits, level))
    if small := [entry for entry in slices if not entry["judged"]]:
        drawn.folded(f"{len(small):,} slices that are not judged", _slice_table(by_loss(small), metrics, limits, level))


def _slice_table(slices: Sequence[Json], metrics: Json, limits: Mapping[str, float], level: Json) -> Html:
    named = list(dict.fromkeys(name for entry in slices for name in entry["metrics"]["candidate"]))
    shown = [(role, name) for role in ("candidate", "champion") if role in metrics for name in named]
    headers = [f"{metric_named(name).title}{' of the champion' if role == 'champion' else ''}" for role, name in shown]
    rows = [
        [*(entry["name"], entry["rows"], entry["level"]), *(_estimate(entry, role, name) for role, name in shown)]
        for entry in slices
    ]
    marks = {index: mark for index, entry in enumerate(slices) if (mark := _mark(entry, limits))}
    formats = {level["title"]: percent} if level["is_share"] else {}
    return table(["slice", "rows", level["title"], *headers], rows, marks, formats, "Slices")


def _estimate(entry: Json, role: str, name: str) -> Html | None:
    ends = entry.get("intervals", {}).get(role, {}).get(name)
    return estimate(metric_named(name), entry["metrics"][role].get(name), ends)


def _dot(entry: Json, metric: Metric, limit: float) -> Dot:
    ends = entry.get("intervals", {}).get("candidate", {}).get(metric.name) if metric.has_interval else None
    low, high = ends or (math.nan, math.nan)
    champion = entry["metrics"].get("champion", {}).get(metric.name, math.nan)
    mark = _mark(entry, {metric.name: limit})
    return Dot(entry["name"], entry["metrics"]["candidate"][metric.name], low, high, champion, mark)


def _mark(entry: Json, limits: Mapping[str, float]) -> str:
    if not entry["judged"]:
        return "soft"
    values = entry["metrics"]["candidate"]
    return "" if all(metric_named(name).keeps(values[name], limit) for name, limit in limits.items()) else "bad"
