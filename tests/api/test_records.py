"""The search of all doors: numbers compare as numbers, missing values meet nothing, and names may be cut."""

import math
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.api.records import select
from gatehouse.errors import ConfigurationError


def lrs(*where: str, sort: str = "", values: tuple[str | None, ...]) -> list[str | None]:
    """The values of the parameter `lr`, of records in this order, that meet conditions, as they are sorted."""
    records = [{"params": {} if value is None else {"lr": value}} for value in values]
    return [record["params"].get("lr") for record in select(records, where, sort).records]


def test_numbers_compare_as_numbers_however_they_are_written() -> None:
    written = ("5e-05", "0.0001", "0.0005", "1E-3", "0.01", "9", "10")
    assert lrs("lr=1e-4..1e-3", sort="lr", values=written) == ["0.0001", "0.0005", "1E-3"]
    assert lrs("lr>9", values=written) == ["10"]
    assert lrs("lr=0.00010", values=written) == ["0.0001"]
    assert lrs("lr >= 1e-2", sort="-lr", values=written) == ["10", "9", "0.01"]
    assert lrs("lr=1e-3..", "lr!=9", "lr=..9.5", values=written) == ["1E-3", "0.01"]


def test_a_record_that_lacks_a_number_meets_nothing_and_comes_last() -> None:
    values = (None, "2", "nan", "1", "auto")
    assert lrs("lr!=2", values=values) == ["1"] and lrs("lr<9", values=values) == ["2", "1"]
    assert lrs("lr=auto", values=values) == ["auto"]
    assert lrs(sort="lr", values=values)[:2] == ["1", "2"] and lrs(sort="-lr", values=values)[:2] == ["2", "1"]
    metrics = [{"metrics": {"loss": loss}} for loss in (math.nan, 2.0, math.inf)]
    assert select(metrics, ["loss>0"], "-loss").records == metrics[:0:-1]


def test_a_name_is_a_field_then_a_parameter_a_metric_and_a_tag_and_may_leave_out_its_beginning() -> None:
    record: dict[str, Any] = {"name": "trial 1", "began": datetime(2013, 1, 1, tzinfo=UTC)}
    record |= {"params": {"optimizer.rate": "0.1", "base.optimizer.rate": "0.7"}}
    record |= {"metrics": {"rate": 0.0, "loss": 0.3}, "tags": {"team": "a", "loss": "x"}}
    conditions = ["rate=0.1", "metrics.rate=0", "loss<0.5", "tags.loss=x", "team=a", "name=trial 1"]
    for where in (*conditions, "began>=2013-01-01", "began=2012-12-31..2013-01-01"):
        assert select([record], [where]).records == [record], where
    assert not select([record], ["began>2013-01-01"]).records
    two = {"params": {"a.rate": "0.1", "b.rate": "0.2"}}
    with pytest.raises(ConfigurationError, match=r"params\.a\.rate or params\.b\.rate"):
        select([two], ["rate=0.1"])
    assert select([two], ["b.rate=0.2"]).columns == {"params.b.rate": ["0.2"]}


@pytest.mark.parametrize("where", ["lr", "lr=..", "=1", "lrr=1", "began=monday", "lr > 1; drop table records"])
def test_what_is_no_condition_is_refused(where: str) -> None:
    record = {"params": {"lr": "1"}, "began": datetime(2013, 1, 1, tzinfo=UTC)}
    if ";" in where:
        assert not select([record], [where]).records, "it is a text, and never SQL"
        return
    with pytest.raises(ConfigurationError):
        select([record], [where])


NUMBERS = st.sampled_from(["-2", "-0.5", "0", "1e-3", "0.001", "1", "1.0", "3e2", "1e400"])


@given(st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), NUMBERS, NUMBERS)
@settings(max_examples=30)
def test_conditions_mean_what_arithmetic_says(sign: str, value: str, bound: str) -> None:
    left, right = (math.inf if text == "1e400" else Fraction(text) for text in (value, bound))
    meant = {"=": left == right, "!=": left != right, "<": left < right, "<=": left <= right}
    meant |= {">": left > right, ">=": left >= right}
    assert bool(lrs(f"lr{sign}{bound}", values=(value,))) == meant[sign]
