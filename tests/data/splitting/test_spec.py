"""The specification: `time` unless it says otherwise, and every mistake named."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gatehouse.data.splitting.spec import STRATEGIES, CheckName, RollingOriginSplit, TimeSplit
from gatehouse.data.splitting.stage import SplitRequest
from gatehouse.store.parameters import as_written, checked, parameter_of
from tests.data.splitting.conftest import spec_of
from tests.source_tree import ROOT

ROLLING = {"strategy": "rolling_origin", "horizon": "P7D", "test_from": "2024-01-01"}
EXAMPLES: list[dict[str, Any]] = [
    {"train_until": "2024-01-01", "validation_until": "2024-02-01"},
    {"strategy": "random", "seed": 3},
    {"strategy": "stratified", "strata": ["label", "town"]},
    {"strategy": "entity", "fractions": {"train": 0.5, "validation": 0.25, "test": 0.25}},
    {"strategy": "group", "columns": ["town"], "checks": {"severity": {"duplicates": "fail"}}},
    {"strategy": "k_fold", "folds": 3, "test_from": "2024-02-01"},
    ROLLING,
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.get("strategy", "time"))
def test_a_specification_survives_the_way_through_a_parameter(example: dict[str, Any]) -> None:
    spec = spec_of(**example)
    body = as_written({"training_set": "t", "spec": parameter_of(spec)})
    assert checked("split", SplitRequest, body) == SplitRequest(training_set="t", spec=spec)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"strategy": "by_moon"}, "expected one of time, random, stratified, entity, group, k_fold, rolling"),
        ({"strategy": "random", "fractions": {"train": 0.9, "validation": 0.2, "test": 0.1}}, "sum to 1, found 1.2"),
        ({"strategy": "k_fold"}, "one of test_fraction and test_from"),
        ({"strategy": "k_fold", "test_fraction": 0.2, "test_from": "2024-01-01"}, "one of test_fraction and test_from"),
        ({"strategy": "k_fold", "test_fraction": 0.2, "unit": "group"}, "columns of the group"),
        (ROLLING | {"horizon": "P1D", "window": "P1D"}, "more than the gap"),
        (ROLLING | {"train_from": "2023-12-01"}, "before the first origin, 2023-11-27"),
        ({"strategy": "random", "checks": {"severity": {"parts": "warn"}}}, "severity"),
    ],
)
def test_a_mistake_is_named(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        spec_of(**keys)


@given(
    origins=st.integers(1, 20),
    horizon=st.integers(1, 400),
    step=st.none() | st.integers(1, 400),
    window=st.none() | st.integers(25, 900),
)
def test_origins_end_at_the_test_part_and_never_train_on_the_future(
    origins: int, horizon: int, step: int | None, window: int | None
) -> None:
    spec = RollingOriginSplit(
        strategy="rolling_origin",
        origins=origins,
        horizon=timedelta(hours=horizon),
        step=None if step is None else timedelta(hours=step),
        window=None if window is None else timedelta(hours=window),
        test_from=datetime(2024, 6, 1, tzinfo=UTC),
    )
    bounds = [spec.at(number) for number in range(origins)]
    assert bounds[-1].validation_until == spec.test_from
    for number, bound in enumerate(bounds):
        assert TimeSplit.model_validate(bound.model_dump()) == bound
        assert bound.validation_until - bound.train_until == spec.horizon
        assert bound.train_from is None if window is None else bound.train_until - bound.train_from == spec.window
        if number:
            assert bound.train_until - bounds[number - 1].train_until == (spec.step or spec.horizon)


def _documented() -> list[str]:
    text = (ROOT / "docs" / "splits.md").read_text(encoding="utf-8")
    return re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("example", _documented())
def test_what_the_documentation_shows_is_a_split(example: str) -> None:
    spec_of(**yaml.safe_load(example))


def test_the_documentation_shows_every_strategy_and_every_check() -> None:
    shown = {type(spec_of(**yaml.safe_load(example))) for example in _documented()}
    assert shown == set(STRATEGIES)
    table = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "splits.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert table == ["parts", *get_args(CheckName)]
