"""Anomalies: where a snapshot and its contract differ, and the verdict; also where a column left its baseline.

The bins of a comparison are ranges between the baseline's deciles, or its most frequent values and all others together.
Nulls, zeros and values that are not finite have bins of their own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from gatehouse.data.distances import HISTOGRAM_DISTANCES, Histogram, mean_shift, spread_ratio

_MAX_REASONS = 20


@dataclass(frozen=True)
class Anomaly:
    """A rule that the data breaks, and in how many rows; None if these cannot be counted.

    The rule has `warn.` in front if it is under `warn`. The column is empty for a rule on the whole table, or several
    joined by a comma. Examples have the number of their `row` in the table, from 0, and the columns that matter.
    """

    table: str
    rule: str
    column: str
    severity: str
    owner: str
    expected: str
    observed: str
    rows: int | None = None
    examples: tuple[dict[str, Any], ...] = ()

    def __str__(self) -> str:
        where = ", ".join(str(example["row"]) for example in self.examples)
        more = ", …" * bool(self.rows and self.rows > len(self.examples))
        at = f" (row{'s' * (len(self.examples) > 1 or bool(more))} {where}{more})" if where else ""
        return f"{self.place}: {self.rule}: expected {self.expected}, found {self.observed}{at}"

    @property
    def place(self) -> str:
        """The column, or the table."""
        return f"{self.table}.{self.column}" if self.column else self.table

    @property
    def advice(self) -> str:
        """The anomaly, and what to do."""
        instead = {
            "table": f"remove {self.place} from the contract",
            "extra_columns": f"add {self.place} to the contract",
            "not checked": f"remove the rule on {self.place} from the contract, or allow that",
        }.get(self.rule, f"change {self.rule} of {self.place} in the contract")
        return f"{self}; ask {self.owner or 'its supplier'} to correct the data, or {instead}"

    def to_json(self) -> dict[str, Any]:
        """The anomaly as JSON."""
        return asdict(self) | {"examples": list(self.examples)}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "Anomaly":
        """The anomaly that `to_json` wrote."""
        return cls(**{**body, "examples": tuple(body["examples"])})


@dataclass
class Findings:
    """The anomalies, the number of rules that were judged, and the rules that could not be judged and why."""

    anomalies: list[Anomaly] = field(default_factory=list)
    judged: int = 0
    not_judged: list[str] = field(default_factory=list)

    def add(self, anomaly: Anomaly | None) -> None:
        """Count a judged rule, and keep its anomaly."""
        self.judged += 1
        if anomaly is not None:
            self.anomalies.append(anomaly)

    def sorted(self) -> list[Anomaly]:
        """Anomalies that fail first, then by table, column and rule."""
        return sorted(
            self.anomalies,
            key=lambda anomaly: (anomaly.severity != "fail", anomaly.table, anomaly.column, anomaly.rule),
        )

    @property
    def verdict(self) -> str:
        """`fail` if any anomaly fails the contract, else `pass`."""
        return "fail" if any(anomaly.severity == "fail" for anomaly in self.anomalies) else "pass"

    def reasons(self) -> tuple[str, ...]:
        """Why the verdict is `fail`, short enough for a task's output; empty for `pass`."""
        return shortened([anomaly.advice for anomaly in self.sorted() if anomaly.severity == "fail"])

    def warnings(self) -> tuple[str, ...]:
        """Anomalies that do not fail the contract, as short as `reasons`."""
        return shortened([anomaly.advice for anomaly in self.sorted() if anomaly.severity == "warn"])

    def warnings_without_values(self) -> tuple[str, ...]:
        """The warnings without values of rows, for the manifest, which stays after an erasure."""
        warned = [anomaly for anomaly in self.sorted() if anomaly.severity == "warn"]
        return shortened([f"{anomaly.place}: {anomaly.rule} does not hold" for anomaly in warned])


def shortened(reasons: Sequence[str]) -> tuple[str, ...]:
    """The first of many reasons, and the number of the others."""
    if len(reasons) <= _MAX_REASONS:
        return tuple(reasons)
    return (*reasons[:_MAX_REASONS], f"and {len(reasons) - _MAX_REASONS} more in the report")


Statistics = Mapping[str, Any]
_LEAST_ROWS = 200


@dataclass(frozen=True)
class Movement:
    """A measure of the baseline's statistics and the statistics in its bins; in messages, `at most` follows the title.

    With fewer than `least_rows` on one side it is not judged: with n and m rows of one distribution in 12 bins, a
    population stability index is 11 (1/n + 1/m) on average, and the divergences are half of that or less.
    """

    measure: Callable[[Statistics, Statistics], float]
    title: str
    unit: str = ""
    least_rows: int = 0


def _of_histograms(name: str) -> Callable[[Statistics, Statistics], float]:
    distance: Callable[[Histogram, Histogram], float] = HISTOGRAM_DISTANCES[name].of

    def measure(baseline: Statistics, current: Statistics) -> float:
        before, now = _bins(baseline), _bins(current)
        names = sorted(before.keys() | now.keys())
        return distance([before.get(bin, 0) for bin in names], [now.get(bin, 0) for bin in names])

    return measure


def _bins(statistics: Statistics) -> dict[str, int]:
    bins = {"null": statistics["nulls"]}
    bins |= {key: statistics.get(key, 0) for key in ("zeros", "not_finite")}
    bins |= {f"bin {index:03d}": count for index, count in enumerate(statistics.get("counts", ()))}
    bins |= {f"value {value}": count for value, count in statistics.get("values", ())}
    return bins | {"other": statistics.get("other", 0)}


MOVEMENTS = {
    "mean_shift": Movement(
        lambda baseline, current: mean_shift(baseline.get("mean"), current.get("mean"), baseline.get("std")),
        "a mean that moved by",
        " deviations of the baseline",
    ),
    "spread_ratio": Movement(
        lambda baseline, current: spread_ratio(baseline.get("std"), current.get("std")),
        "a ratio of standard deviations of",
    ),
    "psi": Movement(_of_histograms("psi"), "a population stability index of", least_rows=_LEAST_ROWS),
    "kl": Movement(_of_histograms("kullback_leibler"), "a Kullback-Leibler divergence of", " nats", _LEAST_ROWS),
    "linf": Movement(_of_histograms("l_infinity"), "a share that changed by"),
    "js": Movement(_of_histograms("jensen_shannon"), "a Jensen-Shannon divergence of", " bits", _LEAST_ROWS),
}
