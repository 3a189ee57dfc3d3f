"""The skew stage: compares logged features, which a model was served, with its training set, over the same bins."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from gatehouse.data.statistics import Statistics
from gatehouse.data.statistics.stage import MeasureRequest, measure, measurement
from gatehouse.data.validation.anomalies import MOVEMENTS, Anomaly, Findings
from gatehouse.data.validation.sensitivity import sensitive_columns
from gatehouse.errors import ConfigurationError
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import Spec, Unordered, identity_of, operational
from gatehouse.store.reference import Reference
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore

_DIGITS = 9
_DISTANCES = ("psi", "js", "linf")
ByName = Mapping[str, Statistics]


class SkewSpec(Spec):
    """The limits of skew between the features that a model was trained on and those that it was asked about."""

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


TABLE = "features"
SKEW_FILE = "skew.json"


class SkewRequest(StageModel):
    """A training set, and logged features to compare with it.

    Attributes:
        serving: Reference of a dataset of logged features with the same column names.
        force: Measure again even if the memo has the statistics; it changes no result.
    """

    training_set: str
    serving: str
    spec: SkewSpec = SkewSpec()
    force: str = operational("")


class SkewResult(StageModel):
    """The comparison, its verdict, and the reasons: `pass`, `fail`, or `unjudged` for too few rows or no features."""

    skew: str
    verdict: str
    reasons: tuple[str, ...]


@stage(
    "skew",
    title="Compare serving with training",
    pages={"skew": "gatehouse.data.validation.skew_report:page"},
)
def skew(request: SkewRequest, store: ArtifactStore) -> SkewResult:
    """Compare feature by feature, in bins of the training set; skew is a verdict, not an error.

    The artifact holds `skew.json` and `anomalies.json`. The features that the training set's manifest names are
    compared, or all its columns if it names none.

    Raises:
        ConfigurationError: if one of the two is no table.
    """
    from gatehouse.data.validation.anomalies import Findings

    manifest = store.manifest(request.training_set)
    for side in (manifest, store.manifest(request.serving)):
        if not side.columns:
            raise ConfigurationError(f"{side.reference}: expected a table, such as a training set, found none in it.")
    details = manifest.details
    named = [*details.get("numeric", ()), *details.get("categorical", ())] or [
        column.name for column in manifest.columns
    ]
    features = tuple(name for name in named if name not in request.spec.ignore)
    trained = _measured(request, store, request.training_set, features, "")
    served = _measured(request, store, request.serving, features, trained)
    before, now = measurement(store, trained), measurement(store, served)
    sides, rebinned = (before.statistics[TABLE], now.statistics[TABLE]), now.rebinned.get(TABLE, {})
    rows = (before.rows[TABLE], now.rows[TABLE])
    bodies = compared(features, *sides, rebinned, rows)
    if few := rows[0] == 0 or rows[1] < request.spec.min_rows:
        expected = f"expected at least {request.spec.min_rows:,} logged rows and a training set"
        observed = f"found {rows[1]:,} logged and {rows[0]:,} trained rows"
        findings = Findings(not_judged=[f"rows: {expected}, {observed}"])
    else:
        findings = judged(request.spec, features, bodies, *sides)
    verdict, reasons = findings.verdict, findings.reasons()
    if (few or all(body["psi"] is None for body in bodies)) and verdict == "pass":
        verdict, reasons = "unjudged", tuple(findings.not_judged[:1]) or ("no feature is compared",)
    body = {
        "verdict": verdict,
        "reasons": reasons,
        "rows": {"training": rows[0], "serving": rows[1]},
        "features": bodies,
        "judged": findings.judged,
        "not_judged": findings.not_judged,
    }
    reference = store.publish(
        "skew",
        manifest.name,
        {
            SKEW_FILE: canonical_json(body),
            "anomalies.json": canonical_json([anomaly.to_json() for anomaly in findings.sorted()]),
        },
        derived_from={
            "training_set": request.training_set,
            "serving": request.serving,
            "training_statistics": trained,
            "serving_statistics": served,
        },
        configuration=identity_of(request.spec),
        details={"verdict": verdict},
    )
    return SkewResult(skew=str(reference), verdict=verdict, reasons=reasons)


def _measured(
    request: SkewRequest, store: ArtifactStore, dataset: str, features: tuple[str, ...], baseline: str
) -> str:
    """Reference of the statistics of one side, without values of columns that are not compared."""
    columns = {column.name for column in store.manifest(dataset).columns}
    hidden = sensitive_columns(store, request.training_set) | sensitive_columns(store, request.serving)
    measuring = MeasureRequest(
        name=Reference.parse(dataset).name,
        datasets={TABLE: dataset},
        sensitive={TABLE: tuple(columns.difference(features).union(request.spec.sensitive, hidden))},
        baseline=baseline,
    )
    return measure(measuring, store, force=request.force).statistics
