"""Judges logged serving features against a training set, from statistics of both over the same bins."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gatehouse.data.statistics import Statistics
from gatehouse.data.validation.anomalies import Anomaly, Findings
from gatehouse.data.validation.movement import MOVEMENTS
from gatehouse.data.validation.spec import SkewSpec

_DIGITS = 9
_TABLE = "serving"
_DISTANCES = ("psi", "js", "linf")


@dataclass(frozen=True)
class FeatureSkew:
    """One feature on both sides.

    Attributes:
        psi, js, linf: Distances of the served rows from the trained rows; None if they have no bins in common.
        nulls_trained: Share of trained rows without a finite value.
        nulls_served: Share of served rows without a finite value.
        mean_trained, mean_served: Means of a number; None for others.
    """

    feature: str
    psi: float | None
    js: float | None
    linf: float | None
    nulls_trained: float
    nulls_served: float
    mean_trained: float | None
    mean_served: float | None


@dataclass(frozen=True)
class SkewJudge:
    """Compares and judges features.

    Attributes:
        features: Names of the features to compare.
        trained, served: Statistics of the training set and of the log, by column.
        rebinned: Statistics of the log in the bins and values of the training set, by column.
        rows: Rows of the training set, and of the log.
        findings: Collects the anomalies.
    """

    spec: SkewSpec
    features: tuple[str, ...]
    trained: Mapping[str, Statistics]
    served: Mapping[str, Statistics]
    rebinned: Mapping[str, Statistics]
    rows: tuple[int, int]
    findings: Findings = field(default_factory=Findings)

    @property
    def too_few(self) -> bool:
        """Whether there are too few rows on one side to judge."""
        trained, served = self.rows
        return trained == 0 or served < self.spec.min_rows

    def run(self) -> list[FeatureSkew]:
        """Compare every feature, the most moved first; with too few rows on one side nothing is judged."""
        if self.too_few:
            trained, served = self.rows
            self.findings.not_judged.append(
                f"rows: expected at least {self.spec.min_rows:,} logged rows and a training set, "
                f"found {served:,} logged and {trained:,} trained rows"
            )
        compared = [self._compared(name) for name in self.features if name in self.trained and name in self.served]
        if not self.too_few:
            self._judge_names()
            for feature in compared:
                self._judge(feature)
        return sorted(compared, key=lambda feature: (-(feature.psi or 0.0), feature.feature))

    def _compared(self, name: str) -> FeatureSkew:
        before, now = self.trained[name], self.rebinned.get(name)
        distances = {
            key: None if now is None or 0 in self.rows else round(MOVEMENTS[key].measure(before, now), _DIGITS)
            for key in _DISTANCES
        }
        nulls = [
            round((statistics["nulls"] + statistics.get("not_finite", 0)) / rows, _DIGITS) if rows else 0.0
            for statistics, rows in zip((before, self.served[name]), self.rows, strict=True)
        ]
        return FeatureSkew(
            name,
            **distances,
            nulls_trained=nulls[0],
            nulls_served=nulls[1],
            mean_trained=before.get("mean"),
            mean_served=self.served[name].get("mean"),
        )

    def _judge_names(self) -> None:
        for name in self.features:
            if name not in self.served:
                listed = ", ".join(sorted(self.served))
                self._add("missing", name, "fail", "a column of this name", f"only {listed}")
            elif name not in self.trained:
                self.findings.not_judged.append(f"{name}: the training set has no such column")
            else:
                self.findings.add(None)
        for name in self.served if self.spec.new_features != "allow" else ():
            if name not in self.trained and name not in self.spec.ignore:
                self._add("new", name, self.spec.new_features, "no such column", str(self.served[name]["type"]))

    def _judge(self, feature: FeatureSkew) -> None:
        name, spec, before, now = (
            feature.feature,
            self.spec,
            self.trained[feature.feature],
            self.served[feature.feature],
        )
        grown = feature.nulls_served - feature.nulls_trained
        expected = (
            f"at most {spec.nulls:.2%} more rows without a value than the {feature.nulls_trained:.2%} in training"
        )
        self._judge_limit("nulls", name, grown > spec.nulls, expected, f"{feature.nulls_served:.2%}")
        if before.get("sensitive"):
            self.findings.not_judged.append(f"{name}: its values, as no histogram is kept of a sensitive column")
        elif _family(before) != _family(now):
            self._add("type", name, "fail", str(before["type"]), str(now["type"]))
        elif feature.psi is None:
            self.findings.not_judged.append(f"{name}: its values, as a {before['type']} has no bins to compare")
        else:
            for rule in _DISTANCES:
                limit, distance, title = getattr(spec, rule), getattr(feature, rule), MOVEMENTS[rule].title
                if limit is not None:
                    self._judge_limit(rule, name, distance > limit, f"{title} at most {limit}", f"{distance:.6g}")

    def _judge_limit(self, rule: str, name: str, broken: bool, expected: str, observed: str) -> None:
        if broken:
            self._add(rule, name, "fail", expected, observed)
        else:
            self.findings.add(None)

    def _add(self, rule: str, name: str, severity: str, expected: str, observed: str) -> None:
        self.findings.add(Anomaly(_TABLE, rule, name, severity, "", expected, observed))


def _family(statistics: Statistics) -> str:
    """The kind that a column is compared as: numbers of any width, texts, truth values, or its type."""
    if "edges" in statistics:
        return "number"
    if "values" in statistics:
        return "truth" if statistics["type"] == "bool" else "text"
    return str(statistics["type"])
