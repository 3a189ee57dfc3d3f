"""Beside an anomaly stands its rule in the contract, as it is written there."""

from typing import Any

import pyarrow as pa
import pytest

from gatehouse.data.validation.anomalies import Anomaly
from gatehouse.data.validation.report import contract_line, page
from gatehouse.store.store import ArtifactStore
from tests.data.validation.conftest import Validate

COLUMNS = {
    "a": {"max": {"value": 900}, "warn": {"min": {"value": 3}}, "pattern": {"value": "a.", "severity": "warn"}},
    "b": {},
}
RULES = [{"name": "small", "sql": "a < 876"}, {"name": "large", "sql": "a > 1"}]
CONTRACT = {"tables": {"t": {"columns": COLUMNS, "expressions": RULES, "min_rows": {"value": 9}}}}


@pytest.mark.parametrize(
    ("rule", "column", "line"),
    [
        ("max", "a", ("tables.t.columns.a", "max: 900")),
        ("warn.min", "a", ("tables.t.columns.a.warn", "min: 3")),
        ("pattern", "a", ("tables.t.columns.a", "pattern: {severity: warn, value: a.}")),
        ("min_rows", "", ("tables.t", "min_rows: 9")),
        ("expression small", "", ("tables.t.expressions", "- {name: small, sql: a < 876}")),
        ("expression", "", None),
        ("max", "b", None),
        ("max_rows", "", None),
    ],
)
def test_the_line_of_a_rule(rule: str, column: str, line: tuple[str, str] | None) -> None:
    assert contract_line(CONTRACT, Anomaly("t", rule, column, "fail", "", "", "")) == line
    assert contract_line(CONTRACT, Anomaly("gone", rule, column, "fail", "", "", "")) is None


def test_the_line_stands_on_the_page_but_not_for_a_sensitive_column(judge: Validate, store: ArtifactStore) -> None:
    contract: dict[str, Any] = {"t": {"columns": {"a": {"type": "string", "allowed": ["secret"]}}}}
    tables = {"t": pa.table({"a": ["x"]})}
    assert '<code class="copy">allowed: [secret]</code>' in page(store, judge(tables, contract).validation)
    contract["t"]["columns"]["a"]["sensitive"] = True
    assert "secret" not in page(store, judge(tables, contract).validation)
