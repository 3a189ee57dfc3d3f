"""The search language: numbers compare as numbers, missing values are unknown, and nothing but comparisons is taken."""

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.errors import ConfigurationError
from gatehouse.tracking.query import parse


@dataclass
class Run:
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)


def lrs(query: str, *values: str | None) -> list[str | None]:
    """The values of the parameter `lr`, of runs in this order, that meet a query, as it orders them."""
    runs = [Run({} if value is None else {"lr": value}) for value in values]
    return [run.params.get("lr") for run in parse(query).select(runs)]


def test_parameters_compare_as_numbers_however_they_are_written() -> None:
    written = ("5e-05", "0.0001", "0.0005", "1E-3", "0.01", "9", "10")
    assert lrs("lr between 1e-4 and 1e-3 order by lr", *written) == ["0.0001", "0.0005", "1E-3"]
    assert lrs("lr > 9", *written) == ["10"]
    assert lrs("lr in (0.00010, 10.0)", *written) == ["0.0001", "10"]
    assert lrs("lr >= 1e-2 order by lr desc", *written) == ["10", "9", "0.01"]


def test_a_run_that_lacks_a_name_meets_only_is_null_and_comes_last() -> None:
    values = (None, "2", "1")
    assert lrs("lr is null", *values) == [None]
    assert lrs("not lr = 2", *values) == ["1"]
    assert lrs("lr not in (2, 3)", *values) == ["1"]
    assert lrs("order by lr", *values) == ["1", "2", None]
    assert lrs("order by lr desc", *values) == ["2", "1", None]
    assert lrs("lr < 9", "auto", "1", "nan") == ["1"], "of numbers, what is no number is missing"


def test_order_has_several_names_and_limit_cuts_it() -> None:
    runs = [Run({"a": a}, {"b": b}) for a, b in (("x", 2.0), ("y", 1.0), ("x", math.nan), ("x", 1.0), ("w", 0.0))]
    ordered = parse("order by a, b desc limit 4").select(runs)
    assert [(run.params["a"], run.metrics["b"]) for run in ordered][:3] == [("w", 0.0), ("x", 2.0), ("x", 1.0)]
    assert math.isnan(ordered[3].metrics["b"])
    assert parse("order by b limit 0").select(runs) == []


def test_names_are_attributes_then_parameters_metrics_and_tags_unless_they_say_which() -> None:
    run = Run({"lr": "0.1"}, {"lr": 0.0, "val loss": 0.4}, {"team": "a"}, {"name": "trial 1", "status": "FINISHED"})
    for query in (
        "lr = 0.1",
        "metrics.lr = 0",
        "params.lr = 0.1",
        '"val loss" < 0.5',
        'metrics."val loss" < 0.5',
        "team = 'a' and tags.team ilike 'A%'",
        "name like 'trial _'",
        "status = 'FINISHED'",
    ):
        assert parse(query).select([run]) == [run], query
    assert parse("metrics.lr > 0").select([run]) == []


def test_a_parameter_of_a_group_is_found_by_its_last_part_before_a_metric_of_that_name() -> None:
    run = Run({"optimizer.rate": "0.1", "base.optimizer.rate": "0.7"}, {"rate": 0.0, "optimizer.loss": 0.3})
    for query in ("rate = 0.1", "params.rate = 0.1", "optimizer.rate = 0.1", "metrics.rate = 0", "loss is null"):
        assert parse(query).select([run]) == [run], query
    two = Run({"optimizer.rate": "0.1", "schedule.rate": "0.2"})
    with pytest.raises(ConfigurationError, match=r"optimizer\.rate or schedule\.rate"):
        parse("rate = 0.1").select([two])
    assert parse("schedule.rate = 0.2").select([two]) == [two]


def test_times_are_read_as_such() -> None:
    run = Run(attributes={"started": 1356998400.0, "duration": 600.0})  # 2013-01-01
    for query in ("started >= '2013-01-01'", "started < '2013-01-01T00:01'", "duration >= 600"):
        assert parse(query).select([run]) == [run], query
    assert parse("duration < 600 or started > '2013-01-01'").select([run]) == []


@pytest.mark.parametrize(
    ("query", "column"),
    [
        ("lr between", 4),
        ("lr 5", 4),
        ("(lr = 1", 7),
        ("lr = 1 limit x", 8),
        ("lr = random()", 6),
        ("lr in (select 1)", 7),
        ("exists (from runs)", 1),
        ("lr = 1 or read_text('/etc/passwd') = 'x'", 11),
        ("lr = 1 order by (select 1)", 17),
        ("lr = 1 group by lr", 1),
        ("lr = 1 union select 1", 1),
        ("lr = 1; from runs", 1),
    ],
)
def test_nothing_but_comparisons_is_taken_and_an_error_points_at_its_column(query: str, column: int) -> None:
    with pytest.raises(ConfigurationError) as error:
        parse(query)
    first, line, caret = str(error.value).splitlines()
    assert first.startswith("query, column ") and line[2:] == query
    assert abs(caret.index("^") - 1 - column) <= 1, first


def test_a_text_beside_numbers_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="query: Conversion Error"):
        lrs("lr = 'auto'", "0.5")


NUMBERS = st.sampled_from(["-2", "-0.5", "0", "1e-3", "0.001", "1", "1.0", "3e2"])
PREDICATES = st.tuples(st.sampled_from("ab"), st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), NUMBERS)
TREES = st.recursive(
    PREDICATES, lambda inner: st.tuples(st.just("not"), inner) | st.tuples(inner, st.sampled_from(["and", "or"]), inner)
)


def written(tree: Any) -> str:
    if tree[0] == "not":
        return f"not ({written(tree[1])})"
    if isinstance(tree[0], tuple):
        return f"({written(tree[0])}) {tree[1]} ({written(tree[2])})"
    return " ".join(tree)


def meant(tree: Any, values: dict[str, Fraction]) -> bool:
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
@settings(max_examples=50)
def test_conditions_mean_what_arithmetic_says(tree: Any, a: str, b: str) -> None:
    run = Run({"a": a, "b": b})
    assert bool(parse(written(tree)).select([run])) == meant(tree, {"a": Fraction(a), "b": Fraction(b)})
