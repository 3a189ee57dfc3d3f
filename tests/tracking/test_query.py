"""The search language: numbers compare as numbers, what is missing is unknown, and errors point at their column."""

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.errors import ConfigurationError
from gatehouse.tracking.query import parse


@dataclass
class Run:
    """What a query reads."""

    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)


def lrs(query: str, *values: str | None) -> list[str | None]:
    """The values of the parameter `lr`, of runs in this order, that meet a query, as it orders them."""
    runs = [Run({} if value is None else {"lr": value}) for value in values]
    return [run.params.get("lr") for run in parse(query).select(runs)]


def test_parameters_compare_as_numbers_however_they_are_written() -> None:
    given = ("5e-05", "0.0001", "0.0005", "1E-3", "0.01", "9", "10")
    assert lrs("lr between 1e-4 and 1e-3 order by lr", *given) == ["0.0001", "0.0005", "1E-3"]
    assert lrs("lr > 9", *given) == ["10"]
    assert lrs("lr = .001", *given) == ["1E-3"]
    assert lrs("lr in (0.00010, 10.0)", *given) == ["0.0001", "10"]
    assert lrs("lr >= 1e-2 order by lr desc", *given) == ["10", "9", "0.01"]


def test_numbers_compare_exactly() -> None:
    assert lrs("lr = 9007199254740993", "9007199254740992", "9007199254740993") == ["9007199254740993"]
    runs = [Run(metrics={"loss": 0.1}), Run(metrics={"loss": 0.1 + 0.2})]
    assert parse("loss = 0.1").select(runs) == runs[:1]
    assert parse("loss = 0.3").select(runs) == []


def test_an_exponent_that_no_computer_counts_with_is_no_number() -> None:
    huge = "1e99999999999999999999"
    assert lrs("lr < 1 order by lr", huge, "0.5") == ["0.5"]
    assert lrs(f"lr < {huge}", "0.5") == [] and lrs(f"lr = {huge}", huge) == [huge]


def test_what_is_no_number_is_neither_greater_nor_less_than_one() -> None:
    given = ("auto", "0.5", None, "nan")
    assert lrs("lr < 1", *given) == ["0.5"]
    assert lrs("not lr < 1", *given) == []
    assert lrs("lr != 0.5", *given) == ["auto", "nan"]
    assert lrs("lr = auto", *given) == ["auto"]
    assert lrs("lr > 'a'", *given) == ["auto", "nan"]


def test_a_run_that_lacks_a_name_meets_only_is_null_and_comes_last() -> None:
    given = (None, "2", "1")
    assert lrs("lr is null", *given) == [None]
    assert lrs("lr is not null", *given) == ["2", "1"]
    assert lrs("not lr = 2", *given) == ["1"]
    assert lrs("lr not in (2, 3)", *given) == ["1"]
    assert lrs("lr = 1 or not lr = 1", *given) == ["2", "1"]
    assert lrs("order by lr", *given) == ["1", "2", None]
    assert lrs("order by lr desc", *given) == ["2", "1", None]


def test_order_has_several_names_and_limit_cuts_it() -> None:
    runs = [Run({"a": a}, {"b": b}) for a, b in (("x", 2.0), ("y", 1.0), ("x", math.nan), ("x", 1.0), ("10", 0.0))]
    ordered = parse("order by a, b desc limit 4").select(runs)
    assert [(run.params["a"], run.metrics["b"]) for run in ordered][:3] == [("10", 0.0), ("x", 2.0), ("x", 1.0)]
    assert math.isnan(ordered[3].metrics["b"])


def test_and_binds_more_than_or_and_parentheses_more_than_both() -> None:
    runs = [Run({"a": a, "b": b}) for a in "01" for b in "01"]

    def met(query: str) -> list[str]:
        return [run.params["a"] + run.params["b"] for run in parse(query).select(runs)]

    assert met("a = 1 or a = 0 and b = 1") == ["01", "10", "11"]
    assert met("(a = 1 or a = 0) and b = 1") == ["01", "11"]
    assert met("not a = 1 and b = 1") == ["01"]
    assert met("not (a = 1 and b = 1)") == ["00", "01", "10"]


def test_names_are_attributes_then_parameters_metrics_and_tags_unless_they_say_which() -> None:
    run = Run({"lr": "0.1"}, {"lr": 0.0, "val loss": 0.4}, {"team": "a"}, {"name": "trial 1", "status": "FINISHED"})
    for query in (
        "lr = 0.1",
        "metrics.lr = 0",
        "params.lr = 0.1",
        "`val loss` < 0.5",
        "metrics.`val loss` < 0.5",
        "team = a and tags.team like 'A%'",
        "name like 'trial _'",
        "status = finished",
    ):
        assert parse(query).select([run]) == [run], query
    assert parse("metrics.lr > 0").select([run]) == []


def test_a_parameter_of_a_group_is_found_by_its_last_part_before_a_metric_of_that_name() -> None:
    run = Run({"optimizer.rate": "0.1", "base.optimizer.rate": "0.7"}, {"rate": 0.0, "optimizer.loss": 0.3})
    for query in ("rate = 0.1", "params.rate = 0.1", "optimizer.rate = 0.1", "metrics.rate = 0", "loss is null"):
        assert parse(query).select([run]) == [run], query
    two = Run({"optimizer.rate": "0.1", "schedule.rate": "0.2"})
    with pytest.raises(ConfigurationError, match=r"rate may be optimizer\.rate or schedule\.rate: name one of them"):
        parse("rate = 0.1").select([two])
    assert parse("schedule.rate = 0.2").select([two]) == [two]


def test_times_and_durations_are_read_as_such() -> None:
    run = Run(attributes={"started": 1356998400.0, "duration": 600.0})  # 2013-01-01
    for query in ("started >= 2013-01-01", "started < 2013-01-01T00:01", "duration >= 10m", "duration = 600"):
        assert parse(query).select([run]) == [run], query
    assert parse("duration < 10m or started > 2013-01-01").select([run]) == []


@pytest.mark.parametrize(
    ("query", "column", "said"),
    [
        ("lr between", 11, "expected a value, found the end"),
        ("lr between 1 or 2", 14, "expected AND, found or"),
        ("lr 5", 4, "expected a comparison"),
        ("(lr = 1", 8, "expected ')', found the end"),
        ("lr = 1 foo", 8, "expected AND, OR, ORDER BY, LIMIT or the end, found foo"),
        ("order loss", 7, "expected BY, found loss"),
        ("lr = 1 limit x", 14, "expected a whole number after LIMIT"),
        ("started > yesterday", 11, "expected a time such as"),
        ("opt = 'adam", 7, "expected another ' after this one"),
        ("lr not = 3", 8, "expected BETWEEN, IN or LIKE"),
        ("1 < lr", 1, "expected a name, found 1"),
        ("order by lr limit ²", 19, "expected a whole number after LIMIT"),
        ("duration > 1e999999h", 12, "expected seconds, or a duration"),
        ("lr in ()", 8, "expected a value, found )"),
    ],
)
def test_an_error_points_at_its_column(query: str, column: int, said: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        parse(query)
    first, line, caret = str(error.value).splitlines()
    assert first.startswith(f"query, column {column}: ") and said in first
    assert line[2:] == query and caret.index("^") == column + 1


NUMBERS = st.sampled_from(["-2", "-0.5", "0", "1e-3", "0.001", "1", "1.0", "3e2"])
PREDICATES = st.tuples(st.sampled_from("ab"), st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), NUMBERS)
TREES = st.recursive(
    PREDICATES, lambda inner: st.tuples(st.just("not"), inner) | st.tuples(inner, st.sampled_from(["and", "or"]), inner)
)


def written(tree: Any) -> str:
    """A condition as a user would write it."""
    if tree[0] == "not":
        return f"not ({written(tree[1])})"
    if isinstance(tree[0], tuple):
        return f"({written(tree[0])}) {tree[1]} ({written(tree[2])})"
    return " ".join(tree)


def meant(tree: Any, values: dict[str, Fraction]) -> bool:
    """What it means, of a run that has everything."""
    if tree[0] == "not":
        return not meant(tree[1], values)
    if isinstance(tree[0], tuple):
        parts = [meant(tree[0], values), meant(tree[2], values)]
        return all(parts) if tree[1] == "and" else any(parts)
    left, right = values[tree[0]], Fraction(tree[2])
    return {
        "=": left == right,
        "!=": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[tree[1]]


@given(TREES, NUMBERS, NUMBERS)
def test_conditions_mean_what_arithmetic_says(tree: Any, a: str, b: str) -> None:
    run = Run({"a": a, "b": b})
    assert bool(parse(written(tree)).select([run])) == meant(tree, {"a": Fraction(a), "b": Fraction(b)})
