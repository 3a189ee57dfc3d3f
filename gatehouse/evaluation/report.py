"""What a person sees of an evaluation: its page, its typed artifacts in KFP, and the page of an integration suite."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gatehouse.data.splitting.parts import class_names
from gatehouse.evaluation.gate import Rule
from gatehouse.evaluation.group_measures import FAIRNESS, GROUP_MEASURES
from gatehouse.evaluation.result import EvaluateResult
from gatehouse.evaluation.spec import IMPORTANCE, SUITE_FILE, EvaluationSpec, GatePolicy, reasons_of, tolerated
from gatehouse.metrics.catalogue import metric_named
from gatehouse.metrics.judging import profile_of
from gatehouse.metrics.tasks import TASKS
from gatehouse.reports.advice import advised
from gatehouse.reports.charts import Dot
from gatehouse.reports.contents import write_page
from gatehouse.reports.format import in_markdown, percent
from gatehouse.reports.page import Cell, Verdict, render
from gatehouse.store.records import read_record
from gatehouse.store.store import ArtifactStore
from gatehouse.store.transfer import export, pull

Json = Mapping[str, Any]
_ROLES = ("candidate", "champion", "baseline", "constant")
_NAMED, _SLICES = 5, 30


def page(store: ArtifactStore, reference: str) -> str:
    """The page of an evaluation, as HTML."""
    manifest = store.manifest(reference)
    names = ("metrics", "slices", "curves", "verdict", "uncertainty")
    metrics, slices, curves, verdict, uncertainty = (store.read_json(reference, f"{name}.json") for name in names)
    policy = GatePolicy.model_validate(verdict["policy"])
    spec = EvaluationSpec.model_validate(manifest.configuration["spec"])
    of_scores = "scores" in manifest.details
    inputs, level = manifest.derived_from, manifest.details["level"]
    measured_on = percent(level["value"]) if level["is_share"] else f"{level['value']:.4g}"
    rules = [Rule(**rule) for rule in verdict["rules"]]
    costs = verdict.get("cost")
    expected = {role: inputs.get(role, "") for role in ("model", "training_set", "split")}
    record = read_record(store.objects, costs["measurement"]) if costs else None
    measured = store.measurements(expected["model"], "evaluate") if expected["model"] else []
    return render(
        "evaluation.html",
        f"Evaluation of {manifest.name}",
        f"{manifest.details['rows']:,} test rows, {level['title']} {measured_on}",
        _verdict(verdict, rules, slices),
        roles=[role for role in _ROLES if role in metrics],
        uncertainty=uncertainty,
        metrics=_metrics(metrics, uncertainty, policy),
        caveats=[(metric.title, metric.caveat) for metric in map(metric_named, metrics["candidate"]) if metric.caveat],
        rules=rules,
        policy=policy,
        spec=spec,
        metric_named=metric_named,
        comparison=_comparison(verdict, policy) if verdict["comparison"] else None,
        level=level,
        curves={role: curves[role] for role in _ROLES if role in curves},
        classes=class_names(store.manifest(inputs["training_set"]).details),
        counted=TASKS[manifest.details["task"]].counted,
        slices=_slices(slices, metrics, policy),
        fairness=store.read_json(reference, FAIRNESS) if manifest.entry(FAIRNESS) else [],
        measures=GROUP_MEASURES,
        importance=_importance(store.read_json(reference, IMPORTANCE) if manifest.entry(IMPORTANCE) else []),
        objective=metric_named(profile_of(TASKS[manifest.details["task"]]).objective),
        judged_cost=costs is not None,
        cost=record or (measured[0] if measured else None),
        inputs={
            "candidate": inputs.get("model", "not stated"),
            "champion": inputs.get("champion") or manifest.details.get("champion") or "none yet",
            "test set" if of_scores else "training set": inputs["training_set"],
            "scores" if of_scores else "split": inputs["scores" if of_scores else "split"],
        },
        of_scores=of_scores,
    )


def _verdict(verdict: Json, rules: Sequence[Rule], slices: Sequence[Json]) -> Verdict:
    """Whether the candidate passes the gate, and what was not checked."""
    broken, warnings = advised([str(rule) for rule in rules if rule.refuses]), verdict["warnings"]
    unchecked = [] if verdict["comparison"] else ["champion: there is none yet, so no rule compares with one"]
    unjudged = [entry["name"] for entry in slices if not entry["judged"]]
    if not slices:
        unchecked.append("slices: evaluation.slices names no column")
    elif unjudged:
        names = f"{', '.join(unjudged[:_NAMED])}{', …' if len(unjudged) > _NAMED else ''}"
        reason = "have too few rows, or labels that do not differ"
        unchecked.append(f"slices: {len(unjudged)} of {len(slices)} {reason}: {names}")
    families = {"drift" if rule.name.startswith("drift ") else rule.name for rule in rules}
    if missing := [name for name in ("training age", "drift", "lineage") if name not in families]:
        unchecked.append(f"{', '.join(missing)}: the policy asks for none of it")
    if verdict["verdict"] == "inconclusive":
        todo = (
            "judge on more test rows, or find features that tell more, or state a tolerance that these rows can show; "
            "the champion stays."
        )
        return Verdict("warn", "", broken, warnings, unchecked, todo, "The test rows cannot tell")
    if not broken:
        kept = sum(rule.holds for rule in rules)
        rest = f"{kept} of the {len(rules)} rules of the policy, and the others only warn"
        text = f"The candidate keeps {f'all {kept} rules of the policy' if kept == len(rules) else rest}."
        return Verdict("pass", text, (), warnings, unchecked, title="Passed the gate")
    todo = "train another candidate, or correct the policy where a rule is wrong; the champion stays."
    return Verdict("refused", "", broken, warnings, unchecked, todo, "Refused by the gate")


def estimate(name: str, value: float | None, interval: Sequence[float] | None, mark: str = "") -> Cell | None:
    """The value of a metric with its 95 % interval below it, if it has one of its own."""
    metric = metric_named(name)
    if value is None:
        return None
    note = " to ".join(metric.text(end) for end in interval) if interval and metric.has_interval else ""
    return Cell(metric.text(value), f"n {mark}".strip(), note)


def _metrics(metrics: Json, uncertainty: Json, policy: GatePolicy) -> list[list[Any]]:
    """One row per metric: the value of each role, the best marked, and the bar."""
    rows = []
    for name in metrics["candidate"]:
        metric, values = metric_named(name), {role: metrics[role][name] for role in _ROLES if role in metrics}
        row: list[Any] = [metric.title]
        for role, value in values.items():
            best = not any(metric.is_better(other, value) for other in values.values())
            row.append(estimate(name, value, uncertainty["intervals"].get(role, {}).get(name), "best" if best else ""))
        if policy.bars:
            bar = policy.bars.get(name)
            bounds = (("≥", bar.min), ("≤", bar.max)) if bar else ()
            row.append(", ".join(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None))
        rows.append(row)
    return rows


def _comparison(verdict: Json, policy: GatePolicy) -> dict[str, Any]:
    """The candidate against the champion in every metric, and a chart of the judged one."""
    judged = verdict["comparison"]
    metric = metric_named(judged["metric"])
    sign = 1.0 if metric.better == "lower" else -1.0  # The chart shows candidate minus champion.
    low, high = sorted((sign * judged["worst_bound"], sign * judged["best_bound"]))
    limit = tolerated(policy.champion.tolerance, judged["champion"])
    mark = "" if judged["worst_bound"] <= limit else "bad"
    rows, marks = [], {}
    for index, (name, body) in enumerate(verdict.get("comparisons", {}).items()):
        other = metric_named(name)
        worse_by, best, worst = (
            f"{'+' if body[key] > 0 else '−' if body[key] < 0 else ''}{other.text(abs(body[key]))}"
            for key in ("worse_by", "best_bound", "worst_bound")
        )
        title = f"{other.title} (judged)" if name == judged["metric"] else other.title
        values = [other.text(body[key]) for key in ("candidate", "champion")]
        rows.append([title, *values, worse_by, f"{best} to {worst}", other.text(body["smallest_shown"])])
        marks[index] = "warn" if body["best_bound"] > 0 else ""
    return {
        "metric": metric,
        "dot": Dot("candidate − champion", sign * judged["worse_by"], low, high, mark=mark),
        "markers": [("equal", 0.0), *([("limit", sign * limit)] if limit else [])],
        "rows": rows,
        "marks": marks,
    }


def _importance(entries: Sequence[Json]) -> list[Dot]:
    """Features by importance, the greatest first; those whose interval holds 0 are soft."""
    dots = []
    for entry in sorted(entries, key=lambda entry: (-entry["value"], entry["feature"])):
        low, high = entry["interval"] or (math.nan, math.nan)
        dots.append(Dot(entry["feature"], entry["value"], low, high, mark="" if low > 0 else "soft"))
    return dots


def _slices(slices: Sequence[Json], metrics: Json, policy: GatePolicy) -> dict[str, Any]:
    """Slices by the metric that the task is judged by, the worst first: rows of the table, and dots per limit."""

    def loss(entry: Json, name: str = "") -> float:
        values = entry["metrics"]["candidate"]
        name = name or next(iter(values))
        return -metric_named(name).worse_by(values[name], 0.0)

    def mark(entry: Json, limits: Mapping[Any, float]) -> str:
        values = entry["metrics"]["candidate"]
        # A slice with one class has no ROC AUC.
        measured = {name: limit for name, limit in limits.items() if name in values}
        kept = all(metric_named(name).keeps(values[name], limit) for name, limit in measured.items())
        return "soft" if not entry["judged"] else "" if kept else "bad"

    limits = policy.slices or {}
    names = list(dict.fromkeys(name for entry in slices for name in entry["metrics"]["candidate"]))
    columns = [(role, name) for role in ("candidate", "champion") if role in metrics for name in names]
    ordered = sorted(slices, key=lambda entry: (not entry["judged"], loss(entry), entry["name"]))
    rows = [
        [
            *(entry["name"], entry["rows"], entry["level"]),
            *(
                estimate(name, entry["metrics"][role].get(name), entry["intervals"].get(role, {}).get(name))
                for role, name in columns
            ),
        ]
        for entry in ordered
    ]
    charts = []
    for name, limit in limits.items():
        metric = metric_named(name)
        measured = [entry for entry in slices if entry["judged"] and name in entry["metrics"]["candidate"]]
        dots = []
        for entry in sorted(measured, key=lambda entry: loss(entry, name))[:_SLICES]:
            interval = entry["intervals"].get("candidate", {}).get(name) if metric.has_interval else None
            low, high = interval or (math.nan, math.nan)
            value, champion = (entry["metrics"].get(role, {}).get(name, math.nan) for role in ("candidate", "champion"))
            dots.append(Dot(entry["name"], value, low, high, champion, mark(entry, {name: limit})))
        charts.append((metric.title, dots, len(measured), [("limit", limit), ("all rows", metrics["candidate"][name])]))
    of_role = {"candidate": "", "champion": " of the champion"}
    return {
        "headers": [f"{metric_named(name).title}{of_role[role]}" for role, name in columns],
        "rows": rows,
        "marks": {index: mark(entry, limits) for index, entry in enumerate(ordered)},
        "judged": sum(entry["judged"] for entry in slices),
        "charts": charts,
    }


def present(result: EvaluateResult, store: ArtifactStore, metrics: Any, roc: Any, report: Any, summary: Any) -> None:
    """Fill KFP's typed outputs from an evaluation: `dsl.Metrics`, `ClassificationMetrics`, `HTML` and `Markdown`."""
    for name, value in result.metrics.items():
        metrics.log_metric(name, value)
    curves = store.read_json(result.evaluation, "curves.json")["candidate"]
    if points := curves.get("roc"):
        roc.log_roc_curve(*([point[column] for point in points] for column in range(3)))
    if pairs := curves.get("confusion"):
        training_set = store.manifest(result.evaluation).derived_from["training_set"]
        classes = class_names(store.manifest(training_set).details)
        counts = {(label, predicted): rows for label, predicted, rows in pairs}
        # -1 stands for all other classes; those without a name are called by their number.
        numbers = sorted({number for pair in counts for number in pair}, key=lambda number: (number < 0, number))
        named = dict(enumerate(classes)) | {-1: "others"}
        roc.log_confusion_matrix(
            [named.get(number, f"class {number}") for number in numbers],
            [[counts.get((label, predicted), 0) for predicted in numbers] for label in numbers],
        )
    write_page(store, result.evaluation, report.path)
    for artifact in (metrics, roc, report, summary):
        artifact.metadata["reference"] = store.address_of(result.evaluation)
    with open(summary.path, "w", encoding="utf-8") as stream:
        stream.write(markdown(result))


def export_evaluation(store: ArtifactStore, evaluation: str, folder: str) -> None:
    """Write an evaluation's files to a folder, and below `store` all that a store needs of it."""
    pull(store, evaluation, ArtifactStore.open(Path(folder, "store")))
    export(store, evaluation, Path(folder))


def markdown(result: EvaluateResult) -> str:
    """Verdict, reasons and metrics as Markdown."""
    columns = {"candidate": result.metrics, "champion": result.champion_metrics, "baseline": result.baseline_metrics}
    shown = {name: values for name, values in columns.items() if values}
    lines = [f"# Candidate: {result.verdict}", ""]
    lines += [f"- {in_markdown(reason)}" for reason in advised(result.reasons)] or ["No rule of the policy refuses it."]
    lines += [f"- warning: {in_markdown(warning)}" for warning in result.warnings]
    lines += ["", f"| metric | {' | '.join(shown)} |", f"|---|{'---:|' * len(shown)}"]
    for metric in result.metrics:
        written = metric_named(metric).text
        lines.append(f"| {in_markdown(metric)} | {' | '.join(written(values[metric]) for values in shown.values())} |")
    return "\n".join([*lines, "", in_markdown(result.summary), "", f"`{result.evaluation}`", ""])


def integration_page(store: ArtifactStore, reference: str) -> str:
    """The page of an integration suite, as HTML."""
    manifest, checks = store.manifest(reference), store.read_json(reference, SUITE_FILE)
    texts = reasons_of(checks)
    verdict = Verdict(manifest.details["verdict"], reasons=texts["reasons"], unchecked=texts["warnings"])
    subtitle = "asked in a process that has only the store"
    title = f"Integration of {manifest.name}"
    return render("integration.html", title, subtitle, verdict, checks=checks, inputs=manifest.derived_from)
