"""How far rates differ between the groups of a protected column: the measures of fairness, named as in Fairlearn."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gatehouse.components.metrics.catalogue.metric import Array

GroupMeasureName = Literal[
    "demographic_parity_difference",
    "demographic_parity_ratio",
    "equal_opportunity_difference",
    "equalized_odds_difference",
    "group_calibration_error",
    "mean_error_difference",
    "mean_prediction_difference",
]
FAIRNESS = "fairness.json"
"""The file of an evaluation that holds what was measured."""
Rates = Mapping[str, Array]
Interval = tuple[float, float, float]
"""A value, and the ends of its 95 % interval."""


@dataclass(frozen=True)
class GroupMeasure:
    """One measure of fairness.

    Attributes:
        title: What reports call it.
        tasks: That have it; of several classes it is taken of each against the rest, and the worst counts.
        of: From rates by name, shape (..., groups, classes), to the measure, shape (...), of a ratio from their
            logarithms to that of the ratio, negated; NaN where nothing is known.
        kind: A `ratio` is 1 where groups are alike, and lower else; a `difference` is 0 there, and higher else; so is
            the `largest` error.
    """

    title: str
    tasks: tuple[str, ...]
    of: Callable[[Rates], Array]
    kind: Literal["difference", "ratio", "largest"] = "difference"

    @property
    def is_ratio(self) -> bool:
        """Whether higher values are better."""
        return self.kind == "ratio"

    def keeps(self, value: float, bound: float) -> bool:
        """Whether a value is as good as a bound, or better; never where it is NaN."""
        return value >= bound if self.is_ratio else value <= bound


@dataclass(frozen=True)
class Group:
    """The rows of one value of a protected column.

    Attributes:
        name: `column=value`.
        rows: Test rows in it.
        lacking: Why it cannot be judged, in words; empty where it can.
        rates: By role and name, with intervals; none of several classes.
    """

    name: str
    rows: int
    lacking: str
    rates: Mapping[str, Mapping[str, Interval]]


@dataclass(frozen=True)
class Fairness:
    """What was measured by one protected column.

    Attributes:
        column: Its name.
        groups: The largest first; empty where the task has no measure of fairness.
        measures: By role and name, over the groups that can be judged; a measure without a value is left out.
    """

    column: str
    groups: tuple[Group, ...]
    measures: Mapping[str, Mapping[str, Interval]]

    def __str__(self) -> str:
        told = [
            f"{GROUP_MEASURES[name].title} {value:.3f} ({low:.3f} to {high:.3f})"
            for name, (value, low, high) in self.measures.get("candidate", {}).items()
        ]
        small = f", {len(self.lacking)} groups cannot be judged" if self.lacking else ""
        return f"fairness by {self.column}: {', '.join(told) or 'not measured'}{small}"

    @property
    def lacking(self) -> tuple[Group, ...]:
        """The groups that cannot be judged."""
        return tuple(each for each in self.groups if each.lacking)


def fairness_from(written: Sequence[Mapping[str, Any]]) -> dict[str, Fairness]:
    """By column, what `fairness.json` of an evaluation holds."""
    return {
        each["column"]: Fairness(each["column"], tuple(Group(**one) for one in each["groups"]), each["measures"])
        for each in written
    }


def _largest(rate: str) -> Callable[[Rates], Array]:
    """Over groups, then over classes; fmax and fmin pass over NaN, where a group has no such rows."""
    return lambda rates: np.asarray(np.fmax.reduce(np.fmax.reduce(rates[rate], axis=-2), axis=-1))


def _difference(*names: str) -> Callable[[Rates], Array]:
    def of(rates: Rates) -> Array:
        spreads = [np.fmax.reduce(rates[name], axis=-2) - np.fmin.reduce(rates[name], axis=-2) for name in names]
        return np.asarray(np.fmax.reduce(np.fmax.reduce(spreads), axis=-1))

    return of


_BINARY, _CLASSES = ("binary",), ("binary", "multiclass")
GROUP_MEASURES: Mapping[str, GroupMeasure] = {
    "demographic_parity_difference": GroupMeasure(
        "demographic parity difference", _CLASSES, _difference("selection_rate")
    ),
    "demographic_parity_ratio": GroupMeasure(
        "demographic parity ratio", _CLASSES, _difference("selection_rate"), "ratio"
    ),
    "equal_opportunity_difference": GroupMeasure(
        "equal opportunity difference", _CLASSES, _difference("true_positive_rate")
    ),
    "equalized_odds_difference": GroupMeasure(
        "equalized odds difference", _CLASSES, _difference("true_positive_rate", "false_positive_rate")
    ),
    "group_calibration_error": GroupMeasure(
        "calibration error of the worst group", _BINARY, _largest("calibration_error"), "largest"
    ),
    "mean_error_difference": GroupMeasure("mean error difference", ("regression",), _difference("mean_error")),
    "mean_prediction_difference": GroupMeasure(
        "mean prediction difference", ("regression",), _difference("mean_prediction")
    ),
}


def group_measures_of(task: str) -> dict[str, GroupMeasure]:
    """The measures that a task has, by name."""
    return {name: each for name, each in GROUP_MEASURES.items() if task in each.tasks}


def problems_of(key: str, bounds: Mapping[GroupMeasureName, float], task: str) -> Iterator[str]:
    """Bounds on measures that the task does not have, or that every model keeps or none can."""
    offered = group_measures_of(task)
    for name, bound in bounds.items():
        if name not in offered:
            yield f"{key}: the task {task} has the measures {', '.join(offered) or 'none'}; found {name}"
        elif task != "regression" and bound > 1:
            yield f"{key}.{name}: expected a value from 0 to 1, found {bound:g}"
