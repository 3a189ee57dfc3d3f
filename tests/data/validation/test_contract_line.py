"""Beside an anomaly stands its rule in the contract, and one that the data keeps: copied, it lets the data pass."""

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
import yaml

from gatehouse.data.statistics.measurement import measurement
from gatehouse.data.validation.anomalies import Anomaly
from gatehouse.data.validation.report import page
from gatehouse.data.validation.reports.contract_line import Line, contract_line
from gatehouse.store.store import ArtifactStore
from tests.data.validation.conftest import Validate

ROWS = 1000
TABLE = {
    "a": [*range(ROWS - 1), None],
    "x": [float(at) / 8 for at in range(ROWS - 1)] + [float("nan")],
    "s": ["ab", "abc"] * (ROWS // 2),
}
TYPES = {"a": "int64", "x": "double", "s": "string"}


def _line(judge: Validate, store: ArtifactStore, column: str, rules: Any, **table: Any) -> tuple[Line, Any, str]:
    """The line behind the one anomaly of a table with one rule; the contract; and the validation."""
    columns = {name: {"type": kind} | (rules if name == column else {}) for name, kind in TYPES.items()}
    contract = {"t": {"columns": columns, **table}}
    result = judge({"t": pa.table(TABLE)}, contract)
    (one,) = [Anomaly.from_json(each) for each in store.read_json(result.validation, "anomalies.json")]
    inputs = store.manifest(result.validation).derived_from
    found = measurement(store, inputs["statistics"]).statistics["t"].get(one.column, {})
    line = contract_line(json.loads(store.read_text(inputs["contract"], "contract.json")), one, ROWS, found)
    assert line is not None
    return line, contract, result.validation


@pytest.mark.parametrize(
    ("column", "rules", "place", "written", "tolerant"),
    [
        ("a", {"max": 900}, "tables.t.columns.a", "max: 900", "max: 998"),
        ("a", {"min": 7}, "tables.t.columns.a", "min: 7", "min: 0"),
        ("a", {"nullable": False}, "tables.t.columns.a", "nullable: false", "completeness: 0.999"),
        ("a", {"warn": {"max": 900}}, "tables.t.columns.a.warn", "max: 900", "max: 998"),
        ("x", {"max": 900}, "tables.t.columns.x", "max: 900", "max: {severity: warn, value: 900}"),
        ("s", {"max_length": 2}, "tables.t.columns.s", "max_length: 2", "max_length: 3"),
        ("s", {"pattern": "a."}, "tables.t.columns.s", "pattern: a.", "pattern: {severity: warn, value: a.}"),
        (
            "s",
            {"min_distinct_share": 0.5},
            "tables.t.columns.s",
            "min_distinct_share: 0.5",
            "min_distinct_share: 0.002",
        ),
    ],
)
def test_the_tolerant_rule_of_a_column_lets_the_data_pass(
    judge: Validate, store: ArtifactStore, column: str, rules: Any, place: str, written: str, tolerant: str
) -> None:
    line, contract, _ = _line(judge, store, column, rules)
    assert (".".join(line.place), line.written, line.tolerant) == (place, written, tolerant)
    at = contract["t"]["columns"][column]
    at = at.get("warn", at)
    at.pop(next(iter(yaml.safe_load(line.written))))
    at |= yaml.safe_load(line.tolerant)
    assert judge({"t": pa.table(TABLE)}, contract).verdict == "pass"


def test_the_tolerant_rule_of_a_table_lets_the_data_pass(judge: Validate, store: ArtifactStore) -> None:
    rule = {"name": "small", "sql": "a < 876"}
    line, contract, validation = _line(judge, store, "", {}, expressions=[rule])
    assert (line.place, yaml.safe_load(line.written)) == (("tables", "t", "expressions"), [rule])
    contract["t"]["expressions"] = yaml.safe_load(line.tolerant)
    assert contract["t"]["expressions"][0]["tolerance"] == 0.13
    assert judge({"t": pa.table(TABLE)}, contract).verdict == "pass"
    assert '<code class="copy">- {name: small, sql: a &lt; 876, tolerance: 0.13}</code>' in page(store, validation)
    least, contract, _ = _line(judge, store, "", {}, min_rows=5000)
    assert (least.written, least.tolerant) == ("min_rows: 5000", "min_rows: 1000")


def test_a_movement_is_rounded_up_so_that_the_same_data_passes(judge: Validate, store: ArtifactStore) -> None:
    contract: dict[str, Any] = {"t": {"columns": {"a": {"type": "int64", "mean_shift": 0.1}}}}
    before = judge({"t": pa.table({"a": list(range(ROWS))})}, contract)
    moved = {"t": pa.table({"a": list(range(50, ROWS + 50))})}
    result = judge(moved, contract, before.validation)
    assert "expected a mean that moved by at most 0.1 deviations of the baseline, found 0.17" in result.reasons[0]
    one = Anomaly.from_json(store.read_json(result.validation, "anomalies.json")[0])
    line = contract_line({"tables": {"t": {"columns": {"a": {"mean_shift": {"value": 0.1}}}}}}, one, ROWS, {})
    assert line is not None and line.tolerant == "mean_shift: 0.18"
    endless = contract_line({"tables": {"t": contract["t"]}}, replace(one, observed="inf"), ROWS, {})
    assert endless is not None and endless.tolerant == "mean_shift: {severity: warn, value: 0.1}"
    contract["t"]["columns"]["a"] |= yaml.safe_load(line.tolerant)
    assert judge(moved, contract, before.validation).verdict == "pass"


def test_of_a_sensitive_column_and_of_what_nobody_wrote_there_is_no_line() -> None:
    contract = {"tables": {"t": {"columns": {"a": {"allowed": {"value": ["secret"]}}}}}}
    broken = Anomaly("t", "allowed", "a", "fail", "", "one of 1 values", "1 of 9 rows that break it", 1)
    assert contract_line(contract, broken, 9, {"sensitive": True}) is None
    assert contract_line(contract, broken, 9, {}) is not None
    for rule, table, column in (("min_rows", "t", ""), ("table", "gone", ""), ("max", "t", "a")):
        assert contract_line(contract, Anomaly(table, rule, column, "fail", "", "", ""), 9, {}) is None
