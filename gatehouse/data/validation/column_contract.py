"""What a contract promises of one column: rules on its values, and which of them cannot be meant."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from gatehouse.data.validation.graded import Part, Problem, Rule, Severity, refuse
from gatehouse.data.validation.rule_values import Bound, Count, Pattern, Positive, Share, Values

ColumnType = Literal["int64", "double", "string", "bool", "timestamp"]
_NUMERIC = ("int64", "double")
_INT64 = range(-(2**63), 2**63)
_ON_TEXTS = ("pattern", "min_length", "max_length")
_AGAINST_A_BASELINE = ("mean_shift", "spread_ratio", "psi", "kl", "linf", "js")
_NAMES_GROUPS = "an evaluation names the groups of a protected column, and no value of a sensitive one may be shown"
_PAIRS = (("min", "max"), ("min_length", "max_length"), ("min_distinct_share", "max_distinct_share"))


@dataclass(frozen=True)
class GradedRule:
    """One rule of a column: its key in the contract (`warn.` in front where it stands there), value and grade."""

    label: str
    key: str
    value: Any
    severity: Severity
    owner: str


class ColumnRules(Part):
    """Rules on the values of one column. Nulls keep every rule but `completeness`; NaN breaks `min` and `max`.

    Each is written as its value, or as a mapping of value, severity and owner. The rules against a baseline
    (`mean_shift` to `js`) are not judged without one.
    """

    completeness: Rule[Share] | None = Field(None, description="Least share of rows that are not null.")
    min: Rule[Bound] | None = Field(None, description="Least value, inclusive: a number, or a time for a timestamp.")
    max: Rule[Bound] | None = Field(None, description="Greatest value, inclusive.")
    allowed: Rule[Values] | None = Field(None, description="The only values that are allowed.")
    pattern: Rule[Pattern] | None = Field(None, description="Regular expression (RE2) that the whole text must match.")
    min_length: Rule[Count] | None = Field(None, description="Least number of characters of a text.")
    max_length: Rule[Count] | None = Field(None, description="Greatest number of characters of a text.")
    unique: Rule[bool] | None = Field(None, description="No value twice; nulls do not count.")
    min_distinct_share: Rule[Share] | None = Field(
        None, description="Smallest number of different values, as a share of the values that are not null."
    )
    max_distinct_share: Rule[Share] | None = Field(None, description="Largest share of different values.")
    mean_shift: Rule[Positive] | None = Field(
        None, description="Greatest distance of the mean from the baseline's, in the baseline's standard deviations."
    )
    spread_ratio: Rule[Annotated[float, Field(ge=1, allow_inf_nan=False)]] | None = Field(
        None,
        description="Largest ratio of the standard deviations of this snapshot and the baseline, the larger "
        "divided by the smaller.",
    )
    psi: Rule[Positive] | None = Field(None, description="Greatest population stability index against the baseline.")
    kl: Rule[Positive] | None = Field(
        None, description="Greatest Kullback-Leibler divergence from the baseline, in nats."
    )
    linf: Rule[Annotated[float, Field(gt=0, le=1)]] | None = Field(
        None, description="Greatest change of the share of any one bin or value (L-infinity distance)."
    )
    js: Rule[Annotated[float, Field(gt=0, le=1)]] | None = Field(
        None, description="Greatest Jensen-Shannon divergence from the baseline, in bits."
    )

    def given(self) -> Iterator[tuple[str, Rule[Any]]]:
        """The rules that are given, by key, in the order of this class."""
        for key in ColumnRules.model_fields:
            rule = getattr(self, key)
            if rule is not None and rule.value is not False:
                yield key, rule


class ColumnContract(ColumnRules):
    """What one column promises. Rules under `warn` are judged too, but cannot break the contract."""

    type: Rule[ColumnType] = Field(
        description="Type of the column. The severity of this rule is also that of a missing column."
    )
    nullable: Rule[bool] = Field(Rule(value=True), description="Whether any value may be null.")
    sensitive: bool = Field(False, description="Show no value of it in anomalies, statistics or reports.")
    protected: bool = Field(
        False, description="Models must treat its values equally: evaluations measure fairness by this column."
    )
    warn: ColumnRules | None = None
    owner: str = Field("", description="Whom to ask if a rule of it is broken; empty for the table's owner.")

    @model_validator(mode="after")
    def _possible(self) -> "ColumnContract":
        refuse("column", _problems(self))
        return self

    def graded(self) -> Iterator[GradedRule]:
        """Every rule on values: those whose breach fails, then those under `warn`."""
        if not self.nullable.value:
            yield GradedRule("nullable", "nullable", False, self.nullable.severity or "fail", self.nullable.owner)
        for key, rule in self.given():
            yield GradedRule(key, key, rule.value, rule.severity or "fail", rule.owner)
        for key, rule in self.warn.given() if self.warn else ():
            yield GradedRule(f"warn.{key}", key, rule.value, "warn", rule.owner)


def _problems(column: ColumnContract) -> Iterator[Problem]:
    """Rules that cannot be meant for a column of this type, or that leave no value."""
    kind = column.type.value
    blocks: list[tuple[tuple[str, ...], dict[str, Any]]] = [((), dict(column.given()))]
    if column.warn is not None:
        blocks.append((("warn",), dict(column.warn.given())))
    for place, rules in blocks:
        for key, rule in rules.items():
            why = _unsuited(key, rule.value, kind, column.sensitive)
            if why:
                yield (*place, key), why, rule.value
            if place and rule.severity == "fail":
                yield (
                    (*place, key, "severity"),
                    "stands under `warn`; move the rule up, or leave `severity` out",
                    "fail",
                )
        for low, high in _PAIRS:
            if low in rules and high in rules:
                yield from reversed_bounds(place, low, rules[low].value, high, rules[high].value)
    if column.protected and column.sensitive:
        yield ("protected",), _NAMES_GROUPS, True
    if not column.nullable.value and column.completeness is not None:
        message = "says nothing beside nullable: false; keep one of the two"
        yield ("completeness",), message, column.completeness.value


def unsuited_if_sensitive(column: ColumnContract) -> Iterator[tuple[str, str, str]]:
    """Of every rule that could not stand if the column were sensitive: its place, its key, and why."""
    for place, rules in (("", column), ("warn.", column.warn or ColumnRules())):
        for key, rule in rules.given():
            if why := _unsuited(key, rule.value, column.type.value, sensitive=True):
                yield place, key, why
    if column.protected:
        yield "", "protected", _NAMES_GROUPS


def _unsuited(key: str, value: Any, kind: str, sensitive: bool) -> str:
    """Why a rule cannot stand at a column of this type; empty where it can."""
    if key in ("min", "max"):
        return _not_a_bound(value, kind)
    if key in _ON_TEXTS and kind != "string":
        return f"expected a column of type string, found {kind}"
    if key == "allowed":
        wanted: dict[str, type] = {"string": str, "int64": int, "bool": bool}
        wrong = [one for one in value if kind not in wanted or type(one) is not wanted[kind]]
        return f"{wrong!r} cannot be values of a column of type {kind}" if wrong else ""
    if key in _AGAINST_A_BASELINE:
        if sensitive:
            return "needs a histogram or moments, and none is kept of a sensitive column"
        if kind == "timestamp":
            return "a timestamp moves on by nature; expected another type"
        if key in ("mean_shift", "spread_ratio") and kind not in _NUMERIC:
            return f"expected a numeric column, found {kind}"
    return ""


def _not_a_bound(value: Any, kind: str) -> str:
    if isinstance(value, datetime) != (kind == "timestamp") or kind not in (*_NUMERIC, "timestamp"):
        return f"{value!r} cannot bound a column of type {kind}"
    if kind == "int64" and not _INT64.start <= value < _INT64.stop:
        return f"{value!r} is outside of what an int64 can be"
    return ""


def reversed_bounds(place: tuple[str, ...], low: str, least: Any, high: str, greatest: Any) -> Iterator[Problem]:
    """The problem of a pair of bounds of which the low one is above the high one; none where they fit."""
    if isinstance(least, datetime) == isinstance(greatest, datetime) and least > greatest:
        yield (*place, low), f"expected {low} <= {high}, found {least} > {greatest}", least
