"""Judges logged serving features against a training set, from statistics of both over the same bins."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from gatehouse.data.statistics import Statistics
from gatehouse.data.validation.anomalies import Anomaly, Findings
from gatehouse.data.validation.movement import MOVEMENTS
from gatehouse.store.identity import Spec, Unordered

_DIGITS = 9
_DISTANCES = ("psi", "js", "linf")
ByName = Mapping[str, Statistics]


class SkewSpec(Spec):
    """What counts as skew between the features that a model was trained on and those that it was asked about."""

    psi: float | None = Field(0.2, gt=0, description="Greatest population stability index of a feature.")
    js: float | None = Field(0.1, gt=0, le=1, description="Greatest Jensen-Shannon divergence of a feature, in bits.")
    linf: float | None = Field(
        None, gt=0, le=1, description="Greatest difference of the share of any bin or value of a feature."
    )
    nulls: float = Field(0.05, ge=0, le=1, description="Largest increase of the share of nulls, NaN and infinities.")
    new_features: Literal["fail", "warn", "allow"] = Field(
        "warn", description="Severity for columns that are not in the training set."
    )
    ignore: Unordered = Field((), description="Columns that are not compared, e.g. request ids.")
    sensitive: Unordered = Field(
        (), description="Columns of which no value may be kept: only their types and nulls are compared."
    )
    min_rows: int = Field(1000, ge=1, description="With fewer logged rows nothing is judged.")


def compared(
    features: Sequence[str], trained: ByName, served: ByName, rebinned: ByName, rows: tuple[int, int]
) -> list[dict[str, Any]]:
    """Compare the features that both sides have, from statistics by column; the most moved come first.

    By feature: its distances `psi`, `js` and `linf`, None without bins in common; on both sides the share of rows
    without a finite value, and the mean, None for other columns than numbers.
    """
    bodies = []
    for name in (name for name in features if name in trained and name in served):
        before, now, in_bins = trained[name], served[name], rebinned.get(name)
        body: dict[str, Any] = {"feature": name}
        for key in _DISTANCES:
            absent = in_bins is None or 0 in rows
            body[key] = None if absent else round(MOVEMENTS[key].measure(before, in_bins or {}), _DIGITS)
        for side, statistics, count in (("trained", before, rows[0]), ("served", now, rows[1])):
            without = statistics["nulls"] + statistics.get("not_finite", 0)
            body[f"nulls_{side}"] = round(without / count, _DIGITS) if count else 0.0
            body[f"mean_{side}"] = statistics.get("mean")
        bodies.append(body)
    return sorted(bodies, key=lambda body: (-(body["psi"] or 0.0), body["feature"]))


def judged(
    spec: SkewSpec, features: Sequence[str], bodies: Sequence[Mapping[str, Any]], trained: ByName, served: ByName
) -> Findings:
    """Judge the names and types of features, and the results of `compared`."""
    findings = Findings()

    def check(rule: str, name: str, severity: str, broken: bool, expected: str, observed: str) -> None:
        findings.add(Anomaly("serving", rule, name, severity, "", expected, observed) if broken else None)

    for name in features:
        if name in served and name not in trained:
            findings.not_judged.append(f"{name}: the training set has no such column")
        else:
            present = ", ".join(sorted(served))
            check("missing", name, "fail", name not in served, "a column of this name", f"only {present}")
    for name in served if spec.new_features != "allow" else ():
        if name not in trained and name not in spec.ignore:
            check("new", name, spec.new_features, True, "no such column", str(served[name]["type"]))
    for body in bodies:
        name, before, now = body["feature"], trained[body["feature"]], served[body["feature"]]
        trained_nulls, served_nulls = body["nulls_trained"], body["nulls_served"]
        expected = f"at most {spec.nulls:.2%} more rows without a value than the {trained_nulls:.2%} in training"
        check("nulls", name, "fail", served_nulls - trained_nulls > spec.nulls, expected, f"{served_nulls:.2%}")
        if before.get("sensitive"):
            findings.not_judged.append(f"{name}: its values, as no histogram is kept of a sensitive column")
        elif _family(before) != _family(now):
            check("type", name, "fail", True, str(before["type"]), str(now["type"]))
        elif body["psi"] is None:
            findings.not_judged.append(f"{name}: its values, as a {before['type']} has no bins to compare")
        else:
            limits = {rule: getattr(spec, rule) for rule in _DISTANCES}
            for rule, limit in ((rule, limit) for rule, limit in limits.items() if limit is not None):
                title, distance = MOVEMENTS[rule].title, body[rule]
                check(rule, name, "fail", distance > limit, f"{title} at most {limit}", f"{distance:.6g}")
    return findings


def _family(statistics: Statistics) -> str:
    """The kind that a column is compared as: numbers of any width, texts, truth values, or its type."""
    if "edges" in statistics:
        return "number"
    if "values" in statistics:
        return "truth" if statistics["type"] == "bool" else "text"
    return str(statistics["type"])
