"""The measures of fairness, with the names of Fairlearn: how far rates of the groups of a protected column differ."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gatehouse.metrics.lazy_numpy import np
from gatehouse.metrics.metric import Array

GroupMeasureName = Literal[
    "demographic_parity_difference",
    "demographic_parity_ratio",
    "equal_opportunity_difference",
    "equalized_odds_difference",
    "group_calibration_error",
    "mean_error_difference",
    "mean_prediction_difference",
]
_SUMMARISED = ("equal_opportunity_difference", "mean_error_difference")
FAIRNESS = "fairness.json"
"""The file of an evaluation that holds what was measured."""
Rates = Mapping[str, Array]
Interval = tuple[float, float, float]
"""A value, and the ends of its 95 % interval."""


@dataclass(frozen=True)
class GroupMeasure:
    """One measure of fairness.

    Attributes:
        tasks: The tasks that have it. With several classes the worst class against the rest counts.
        kind: A `ratio` is 1 where the groups are alike, and otherwise lower. A `difference` and the `largest` error are
            0 where the groups are alike, and otherwise higher.
    """

    title: str
    tasks: tuple[str, ...]
    rates: tuple[str, ...]
    kind: Literal["difference", "ratio", "largest"] = "difference"

    @property
    def is_ratio(self) -> bool:
        """Whether higher values are better."""
        return self.kind == "ratio"

    def of(self, rates: Rates) -> Array:
        """How far apart rates are, from shape (..., groups, classes) to shape (...); NaN where nothing is known.

        Unknown rates (NaN) are left out, and a difference needs two others. The worst rate and class count. A ratio
        takes logarithms of rates, and the result is the negative logarithm of the ratio.
        """
        apart = [np.fmax.reduce(rates[name], axis=-2) for name in self.rates]
        if self.kind != "largest":
            least = [np.fmin.reduce(rates[name], axis=-2) for name in self.rates]
            several = [(~np.isnan(rates[name])).sum(axis=-2) > 1 for name in self.rates]
            apart = [np.where(two, most - low, np.nan) for most, low, two in zip(apart, least, several, strict=True)]
        return np.asarray(np.fmax.reduce(np.fmax.reduce(apart), axis=-1))

    def keeps(self, value: float, bound: float) -> bool:
        """Whether a value is as good as a bound, or better; never where it is NaN."""
        return value >= bound if self.is_ratio else value <= bound


@dataclass(frozen=True)
class Group:
    """The rows of one value of a protected column, their rates by role and name, and in words what cannot be judged."""

    name: str
    rows: int
    lacking: str
    rates: Mapping[str, Mapping[str, Interval]]
    unknown: Sequence[str] = ()


@dataclass(frozen=True)
class Fairness:
    """The measurements by one protected column.

    Attributes:
        groups: The largest first; empty if the task has no measure of fairness.
        measures: By role and name, over the groups that can be judged; a measure without a value is left out.
    """

    column: str
    groups: tuple[Group, ...]
    measures: Mapping[str, Mapping[str, Interval]]

    def __str__(self) -> str:
        measured = self.measures.get("candidate", {})
        values = [
            f"{GROUP_MEASURES[name].title} {value:.3f} ({low:.3f} to {high:.3f})"
            for name, (value, low, high) in measured.items()
            if name in _SUMMARISED
        ]
        partly = "".join(f", {group.name} lacks {group.lacking}" for group in self.groups if group.unknown)
        small = f", {len(self.lacking)} groups cannot be judged" if self.lacking else ""
        return f"fairness by {self.column}: {', '.join(values) or 'not measured'}{partly}{small}"

    @property
    def lacking(self) -> tuple[Group, ...]:
        """The groups that cannot be judged at all."""
        return tuple(group for group in self.groups if group.lacking and not group.unknown)

    def without(self, rates: Sequence[str]) -> tuple[Group, ...]:
        """The groups that are judged, but not by each of these rates."""
        return tuple(group for group in self.groups if set(rates) & set(group.unknown))


def fairness_from(written: Sequence[Mapping[str, Any]]) -> dict[str, Fairness]:
    """The content of `fairness.json`, by column."""
    return {
        body["column"]: Fairness(body["column"], tuple(Group(**group) for group in body["groups"]), body["measures"])
        for body in written
    }


_BINARY, _CLASSES = ("binary",), ("binary", "multiclass")
GROUP_MEASURES: Mapping[str, GroupMeasure] = {
    "demographic_parity_difference": GroupMeasure("demographic parity difference", _CLASSES, ("selection_rate",)),
    "demographic_parity_ratio": GroupMeasure("demographic parity ratio", _CLASSES, ("selection_rate",), "ratio"),
    "equal_opportunity_difference": GroupMeasure("equal opportunity difference", _CLASSES, ("true_positive_rate",)),
    "equalized_odds_difference": GroupMeasure(
        "equalized odds difference", _CLASSES, ("true_positive_rate", "false_positive_rate")
    ),
    "group_calibration_error": GroupMeasure(
        "calibration error of the worst group", _BINARY, ("calibration_error",), "largest"
    ),
    "mean_error_difference": GroupMeasure("mean error difference", ("regression",), ("mean_error",)),
    "mean_prediction_difference": GroupMeasure("mean prediction difference", ("regression",), ("mean_prediction",)),
}


def group_measures_of(task: str) -> dict[str, GroupMeasure]:
    """The measures that a task has, by name."""
    return {name: measure for name, measure in GROUP_MEASURES.items() if task in measure.tasks}


def problems_of(key: str, bounds: Mapping[GroupMeasureName, float], task: str) -> Iterator[str]:
    """Bounds on measures that the task does not have."""
    offered = group_measures_of(task)
    for name in bounds:
        if name not in offered:
            yield f"{key}: the task {task} has the measures {', '.join(offered) or 'none'}; found {name}"
