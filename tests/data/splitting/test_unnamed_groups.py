"""A column that names groups, such as persons, is found, and a number that names nothing is not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gatehouse.data.splitting.outcome import FAILED, NOTED, PASSED
from tests.data.splitting.test_checks import HOUR, checks_of


def _of_people(**changes: Any) -> dict[str, Any]:
    """Four rows of each of 200 people, whose income is one; a rejected row left one person with a single row."""
    person, generator = np.repeat(np.arange(200), 4), np.random.default_rng(3)
    columns = {
        "key": np.arange(800),
        "decision_time": np.datetime64("2024-01-01", "us") + np.arange(800) * HOUR,
        "label": np.arange(800) % 2,
        "person": person.astype(np.float32),
        "income": generator.normal(size=200)[person],
        "size": generator.normal(size=800),
        "shop": generator.integers(0, 60, 800),
    }
    return {name: np.delete(column, [0, 1, 2]) for name, column in (columns | changes).items()}


PERSON = (
    "person may name something that has several rows, such as a person: its 200 values have at most 4 rows each, which "
    "agree in income, and "
)


@pytest.mark.parametrize(
    ("changes", "spec", "status", "severity"),
    [
        ({}, {"strategy": "random"}, FAILED, "warn"),
        ({}, {"strategy": "stratified"}, FAILED, "warn"),
        ({}, {"strategy": "group", "columns": ["shop"]}, FAILED, "warn"),
        ({}, {"strategy": "group", "columns": ["person"]}, PASSED, "warn"),
        ({}, {"strategy": "random", "checks": {"groups": ["person"]}}, PASSED, "warn"),
        ({}, {"strategy": "random", "checks": {"severity": {"unnamed_groups": "note"}}}, NOTED, "note"),
        # Numbers that name nothing: their rows agree in nothing, or in what nearly all rows have.
        ({"income": np.random.default_rng(4).normal(size=800)}, {"strategy": "random"}, PASSED, "warn"),
        ({"income": (np.arange(800) == 1) * 1.0}, {"strategy": "random"}, PASSED, "warn"),
        ({"person": np.arange(800) // 4 + 0.5}, {"strategy": "random"}, PASSED, "warn"),
        ({"person": np.arange(800) // 40}, {"strategy": "random"}, PASSED, "warn"),
        ({"person": np.arange(800) // 2 * (np.arange(800) % 2)}, {"strategy": "random"}, PASSED, "warn"),
    ],
)
def test_a_column_that_names_groups_which_the_split_does_not_know_is_found(
    tmp_path: Path, changes: dict[str, Any], spec: dict[str, Any], status: str, severity: str
) -> None:
    details = {"numeric": ["person", "income", "size"], "categorical": []}
    found = checks_of(tmp_path, _of_people(**changes), **spec, details=details)["unnamed_groups"]
    assert (found.status, found.severity) == (status, severity), found.said
    assert all(text.startswith(PERSON) for text in found.said) and len(found.said) == (status != PASSED)


def _with_more_people(rows: int, **changes: Any) -> dict[str, Any]:
    """More rows, each of a person of its own."""
    more = {"person": np.arange(1000, 1000 + rows), "income": np.random.default_rng(8).normal(size=rows)} | changes
    columns = _of_people()
    for name, column in columns.items():
        added = more.get(name, column[:rows])
        columns[name] = np.concatenate([column, added.astype(column.dtype)])
    return columns | {"key": np.arange(len(columns["key"]))}


@pytest.mark.parametrize("case", ["a missing income", "a wrong income", "a person with 30 rows", "people with one row"])
def test_a_few_odd_rows_hide_no_groups(tmp_path: Path, case: str) -> None:
    """Of 200 people, one lacks an income once, or has another once, or has many rows; or 20 more have one row each."""
    columns = _of_people()
    if case.endswith("income"):
        columns["income"][17] = np.nan if case.startswith("a missing") else 7.0
    elif case.endswith("30 rows"):
        columns = _with_more_people(30, person=np.full(30, 5), income=np.full(30, columns["income"][20]))
    else:
        columns = _with_more_people(20)
    details = {"numeric": ["person", "income", "size"], "categorical": []}
    found = checks_of(tmp_path, columns, strategy="random", details=details)["unnamed_groups"]
    assert found.status == FAILED and "which agree in income" in found.said[0]
    assert ("mostly at most 4 rows" in found.said[0]) == case.endswith("30 rows")


COMPUTED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "price band": lambda price: price // 5,
    "last digit": lambda price: price % 10,
    "tax": lambda price: price * 0.19,
    "rebate": lambda price: -price,
    "is dear": lambda price: price > 200,
}


@pytest.mark.parametrize("computed", [*COMPUTED, "label"])
def test_a_number_from_which_another_is_computed_names_nothing(tmp_path: Path, computed: str) -> None:
    price = np.random.default_rng(9).integers(100, 400, 1500)
    label = price > 250 if computed == "label" else np.arange(1500) % 2
    tax = np.random.default_rng(10).normal(size=1500) if computed == "label" else COMPUTED[computed](price)
    times = np.datetime64("2024-01-01", "us") + np.arange(1500) * HOUR
    columns = {"key": np.arange(1500), "decision_time": times, "price": price, "tax": tax.astype(float)}
    columns["label"] = label.astype(np.int8)
    details = {"numeric": ["price", "tax"], "categorical": []}
    assert checks_of(tmp_path, columns, strategy="random", details=details)["unnamed_groups"].status == PASSED


def test_columns_of_few_values_tell_groups_together(tmp_path: Path) -> None:
    """A town and a language of each person: one may be computed from a number, the two together are a person's."""
    generator, person = np.random.default_rng(11), np.repeat(np.arange(200), 4)
    town, language = (generator.integers(0, 5, 200)[person].astype(float) for _ in range(2))
    columns = _of_people(income=town, size=language)
    details = {"numeric": ["person", "income", "size"], "categorical": []}
    found = checks_of(tmp_path, columns, strategy="random", details=details)["unnamed_groups"]
    assert found.status == FAILED and len(found.said) == 1
    label = _of_people(income=generator.normal(size=800), label=generator.integers(0, 2, 200)[person])
    found = checks_of(tmp_path, label, strategy="random", details=details)["unnamed_groups"]
    assert found.status == FAILED and "which agree in label" in found.said[0]
