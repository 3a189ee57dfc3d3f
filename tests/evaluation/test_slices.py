"""Slices: every row counts once a column, and small or one-sided slices are shown but not judged."""

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.bootstrap import Units
from gatehouse.evaluation.draws import Sample
from gatehouse.evaluation.report import _slices
from gatehouse.evaluation.slices import MOST_VALUES, Slice, group, measured_slices, slice_columns
from gatehouse.evaluation.spec import EvaluationSpec, GatePolicy
from gatehouse.metrics.tasks import BINARY
from gatehouse.project.checking import slice_problems

LABELS = np.array([0, 1, 0, 1, 1, 1], dtype=np.int8)
SCORES = np.array([0.1, 0.9, 0.6, 0.4, 0.5, 0.5])
TABLE = pa.table({"carrier": ["AA", "AA", "ÜÄ", "ÜÄ", None, None], "number": [1, 1, 1, 1, 2, 2]})
SPEC = EvaluationSpec(slices=("carrier",), min_slice_rows=2)


def sliced(spec: EvaluationSpec = SPEC, **models: Any) -> dict[str, Slice]:
    """Slices of the rows above by name; more models than the candidate are given by role."""
    predictions = {role: BINARY.read(scores, None) for role, scores in ({"candidate": SCORES} | models).items()}
    sample = Sample(LABELS, predictions, Units("row", 6))
    slices = measured_slices(TABLE, sample, spec, BINARY, ("roc_auc",), ("log_loss", 0.95))
    return {entry.name: entry for entry in slices}


def test_each_value_is_a_slice_and_so_are_nulls() -> None:
    result = sliced()
    assert set(result) == {"carrier=AA", "carrier=ÜÄ", "carrier=(null)"}
    assert [result[name].metrics["candidate"]["roc_auc"] for name in ("carrier=AA", "carrier=ÜÄ")] == [1.0, 0.0]
    assert result["carrier=AA"].level == 0.5


def test_nan_is_the_same_missing_value_as_null() -> None:
    rows = pa.table({"carrier": pa.array([1.0, 1.0, None, float("nan"), None, float("nan")])})
    names, members = group(slice_columns(rows, SPEC)["carrier"])
    assert (names, members.tolist()) == (["carrier=(null)", "carrier=1"], [1, 1, 0, 0, 0, 0])


@given(st.lists(st.none() | st.text(max_size=3), min_size=1, max_size=120))
def test_groups_divide_the_rows(values: list[str | None]) -> None:
    names, members = group(
        slice_columns(pa.table({"x": pa.array(values, pa.string())}), EvaluationSpec(slices=("x",)))["x"]
    )
    assert len(members) == len(values)
    assert 0 <= members.min() <= members.max() < len(names) <= MOST_VALUES
    if len(set(values)) <= MOST_VALUES:
        assert all(
            names[group_] == (f"x={value}" if value is not None else "x=(null)")
            for group_, value in zip(members, values, strict=True)
        )


def test_rare_values_are_taken_together() -> None:
    values = [f"common {index % 39}" for index in range(390)] + [f"rare {index}" for index in range(300)]
    names, members = group(pa.chunked_array([values]))
    assert len(names) == MOST_VALUES
    assert names[-1] == "(other)"
    assert all(name.startswith("common") for name in names[:-1])
    assert (members == MOST_VALUES - 1).sum() == 300


def test_expressions_slice_the_rows_and_two_are_crossed() -> None:
    spec = EvaluationSpec(
        slices={"even": "number % 2 = 0", "letters": "length(carrier)"}, crossed_slices=(("even", "letters"),)
    )
    assert {name: entry.rows for name, entry in sliced(spec).items()} == {
        "even=false": 4,
        "even=true": 2,
        "letters=2": 4,
        "letters=(null)": 2,
        "even=false × letters=2": 4,
        "even=true × letters=(null)": 2,
    }


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("weather = 1", "weather"),
        ("count(*)", "a value for each of 6 rows, found 1"),
        ("number ++", "syntax error"),
        ("random()", "expected"),
    ],
)
def test_an_expression_that_cannot_be_evaluated_is_named(expression: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"evaluation.slices: x:(1:)? .*{re.escape(problem)}"):
        sliced(EvaluationSpec(slices={"x": expression}))


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("number % 2 = 0", ""),
        ("nmber % 2 = 0", "found nmber in"),
        *(
            (expression, "expected one SQL expression")
            for expression in ("number +", "number ** (", " ", "1 FROM rows")
        ),
        ("1) FROM rows; SELECT (2", "expected one SQL expression"),
    ],
)
def test_an_expression_is_checked_without_rows(expression: str, problem: str) -> None:
    problems = list(slice_problems(expression, ("number", "carrier")))
    assert len(problems) == bool(problem) and problem in "".join(problems)


def test_a_slice_is_compared_with_the_champion_on_the_same_draws() -> None:
    comparison = sliced(champion=SCORES.copy())["carrier=AA"].comparisons["log_loss"]
    assert (comparison.worse_by, comparison.worst_bound, comparison.best_bound) == (0.0, 0.0, 0.0)
    assert sliced()["carrier=AA"].comparisons == {}


def test_the_page_shows_a_slice_that_lacks_the_metric_of_its_limit() -> None:
    entry = {"name": "city Chur", "rows": 30, "level": 1.0, "judged": True, "intervals": {}}
    entry["metrics"] = {"candidate": {"log_loss": 0.1}}
    limits = GatePolicy.model_validate({"slices": {"roc_auc": 0.5}})
    shown = _slices([entry], {"candidate": {"log_loss": 0.2, "roc_auc": 0.8}}, limits)
    assert shown["marks"] == {0: ""} and len(shown["rows"]) == 1
