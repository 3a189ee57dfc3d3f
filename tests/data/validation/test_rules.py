"""Rules beyond the values of one row: lengths, shares, order, movement from a baseline, other snapshots, grades."""

import json
from collections.abc import Mapping
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gatehouse.data.validation.contract import CONTRACT_FILE, parse_contract
from gatehouse.data.validation.stage import ValidateRequest, ValidateResult, validate
from gatehouse.errors import ConfigurationError
from gatehouse.store.store import ArtifactStore
from tests.data.validation.conftest import Validate, publish, shown


def _anomalies(store: ArtifactStore, result: ValidateResult) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = store.read_json(result.validation, "anomalies.json")
    return found


def _not_judged(store: ArtifactStore, result: ValidateResult) -> list[str]:
    found: list[str] = store.read_json(result.validation, "verdict.json")["not_judged"]
    return found


def _column(rules: Mapping[str, Any], **table: Any) -> dict[str, Any]:
    return {"t": {"columns": {"a": dict(rules)}} | table}


@pytest.mark.parametrize(
    ("rules", "rows"), [({"min_length": 2}, [0, 4]), ({"max_length": 2}, [2]), ({"min_length": 0}, [])]
)
def test_lengths_are_counted_in_characters(
    judge: Validate, store: ArtifactStore, rules: dict[str, int], rows: list[int]
) -> None:
    table = pa.table({"a": pa.array(["x", "xy", "xyz", None, "✈"])})
    found = _anomalies(store, judge({"t": table}, _column({"type": "string"} | rules)))
    assert [example["row"] for anomaly in found for example in anomaly["examples"]] == rows


@pytest.mark.parametrize("copies", [1, 50])
def test_every_row_of_a_value_that_breaks_a_rule_is_counted(judge: Validate, store: ArtifactStore, copies: int) -> None:
    table = pa.table({"a": pa.array(["ok", "b\n", None, "Ünï", "ok2"] * copies)})
    rules = {"type": "string", "pattern": "[a-z]+[0-9]?", "allowed": ["ok", "b\n", "Ünï"], "nullable": False}
    found = {one["rule"]: one for one in _anomalies(store, judge({"t": table}, _column(rules)))}
    assert {rule: one["rows"] for rule, one in found.items()} == {
        "nullable": copies,
        "pattern": 2 * copies,
        "allowed": copies,
    }
    assert found["allowed"]["examples"][0] == {"row": 4, "a": "ok2"}


@pytest.mark.parametrize(
    ("rules", "verdict"),
    [
        ({"min_distinct_share": 0.5}, "pass"),
        ({"min_distinct_share": 0.51}, "fail"),
        ({"max_distinct_share": 0.5}, "pass"),
        ({"max_distinct_share": 0.49}, "fail"),
    ],
)
def test_the_share_of_different_values_leaves_nulls_out(judge: Validate, rules: dict[str, float], verdict: str) -> None:
    table = pa.table({"a": pa.array([1, 1, 2, 2, None, None])})
    assert judge({"t": table}, _column({"type": "int64"} | rules)).verdict == verdict


def test_a_rule_carries_its_own_severity_and_owner(judge: Validate, store: ArtifactStore) -> None:
    contract = _column(
        {
            "type": "int64",
            "owner": "column",
            "max": {"value": 1, "severity": "warn", "owner": "rule"},
            "allowed": [9],
            "unique": {"value": True, "severity": "warn"},
        },
        owner="table",
        unique=[{"columns": ["a"], "severity": "warn"}],
        min_rows={"value": 10, "severity": "warn"},
    )
    result = judge({"t": pa.table({"a": [3, 3]})}, contract)
    found = {(one["rule"], one["severity"], one["owner"]) for one in _anomalies(store, result)}
    assert result.verdict == "fail"
    assert found == {
        ("max", "warn", "rule"),
        ("allowed", "fail", "column"),
        ("unique", "warn", "column"),
        ("unique", "warn", "table"),
        ("min_rows", "warn", "table"),
    }


def test_a_missing_column_has_the_grade_of_its_type(judge: Validate) -> None:
    contract = _column({"type": {"value": "int64", "severity": "warn"}}, extra_columns="allow")
    assert judge({"t": pa.table({"b": [1]})}, contract).verdict == "pass"


def _brute_misplaced(values: list[tuple[int | None, int | None]], descending: bool, strictly: bool) -> list[int]:
    found = []
    for index in range(1, len(values)):
        before, now = values[index - 1], values[index]
        if None in before or None in now:
            continue
        kept = now <= before if descending else now >= before  # type: ignore[operator]  # no None is left
        if strictly:
            kept = kept and now != before
        if not kept:
            found.append(index)
    return found


cells = st.sampled_from([None, 0, 1, 2])


orders = st.tuples(st.lists(st.tuples(cells, cells), min_size=1, max_size=12), st.booleans(), st.booleans())


# Shrinking a failure would judge hundreds of snapshots, for minutes.
@settings(max_examples=5, deadline=None, phases=[Phase.reuse, Phase.generate], suppress_health_check=list(HealthCheck))
@given(cases=st.lists(orders, min_size=8, max_size=8))
def test_order_agrees_with_brute_force(
    judge: Validate, store: ArtifactStore, cases: list[tuple[list[tuple[int | None, int | None]], bool, bool]]
) -> None:
    tables, contract = {}, {}
    for number, (values, descending, strictly) in enumerate(cases):
        columns = {name: pa.array([row[n] for row in values], pa.int64()) for n, name in enumerate("ab")}
        tables[f"t{number}"] = pa.table(columns)
        contract[f"t{number}"] = {
            "columns": {"a": {"type": "int64"}, "b": {"type": "int64"}},
            "ordered": {"by": ["a", "b"], "descending": descending, "strictly": strictly},
        }
    found = {one["table"]: one for one in _anomalies(store, judge(tables, contract, rows_per_file=3))}
    for number, case in enumerate(cases):
        rows, one = _brute_misplaced(*case), found.get(f"t{number}", {"rows": 0, "examples": []})
        assert one["rows"] == len(rows)
        assert [example["row"] for example in one["examples"]] == rows[:5]


def _against(store: ArtifactStore, before: pa.Table, now: pa.Table, contract: dict[str, Any]) -> ValidateResult:
    text = json.dumps({"version": 1, "tables": contract})
    reference = str(store.publish("config", "contract", {CONTRACT_FILE: text}))
    first = validate(ValidateRequest(snapshot=publish(store, {"t": before}), contract=reference), store)
    request = ValidateRequest(snapshot=publish(store, {"t": now}), contract=reference, baseline=first.validation)
    return validate(request, store)


MOVED = {"mean_shift": 0.5, "spread_ratio": 1.5, "psi": 0.25, "kl": 0.1, "linf": 0.15, "js": 0.05}


@pytest.mark.parametrize(("rule", "limit"), MOVED.items())
def test_a_distribution_that_moved_breaks_every_rule_on_it_and_one_that_did_not_keeps_it(
    store: ArtifactStore, rule: str, limit: float
) -> None:
    generator = np.random.default_rng(3)
    before = pa.table({"a": generator.normal(size=2000)})
    same, moved = pa.table({"a": generator.normal(size=2000)}), pa.table({"a": generator.normal(1.5, 2.5, size=2000)})
    contract = _column({"type": "double", rule: limit})
    assert _against(store, before, same, contract).verdict == "pass"
    result = _against(store, before, moved, contract)
    (anomaly,) = _anomalies(store, result)
    assert (anomaly["rule"], anomaly["column"], result.verdict) == (rule, "a", "fail")


def test_without_a_baseline_nothing_moves_and_that_is_said(judge: Validate, store: ArtifactStore) -> None:
    contract = _column({"type": "double", **MOVED}, min_rows_ratio=0.5)
    result = judge({"t": pa.table({"a": [1.0]})}, contract)
    assert result.verdict == "pass"
    assert _not_judged(store, result) == ["t: min_rows_ratio, as there is no baseline"] + [
        f"t.a: {rule}, as there is no baseline" for rule in MOVED
    ]


@pytest.mark.parametrize(("rows", "rule"), [(4, "min_rows_ratio"), (5, ""), (20, ""), (21, "max_rows_ratio")])
def test_row_counts_are_compared_with_the_baseline(store: ArtifactStore, rows: int, rule: str) -> None:
    contract = _column({"type": "int64"}, min_rows_ratio=0.5, max_rows_ratio=2.0)
    before, now = pa.table({"a": list(range(10))}), pa.table({"a": list(range(rows))})
    found = _anomalies(store, _against(store, before, now, contract))
    assert [one["rule"] for one in found] == ([rule] if rule else [])


@pytest.mark.parametrize("named", [True, False])
def test_a_key_may_lead_to_another_snapshot(store: ArtifactStore, named: bool) -> None:
    other = publish(store, {"t": pa.table({"id": [1, 2]})})
    key = {"columns": ["a"], "table": "t", "to": ["id"], "snapshot": "reference data" if named else other}
    text = json.dumps({"version": 1, "tables": _column({"type": "int64"}, foreign_keys=[key])})
    contract = str(store.publish("config", "contract", {CONTRACT_FILE: text}))
    snapshot = publish(store, {"t": pa.table({"a": [1, 3, None]})})
    given_ = {"reference data": other} if named else {}
    result = validate(ValidateRequest(snapshot=snapshot, contract=contract, snapshots=given_), store)
    (anomaly,) = _anomalies(store, result)
    assert (anomaly["rule"], anomaly["rows"], anomaly["examples"][0]["row"]) == ("foreign_keys", 1, 1)
    assert other in store.manifest(result.validation).derived_from.values()


def test_a_snapshot_that_nobody_gives_fails_the_key(judge: Validate, store: ArtifactStore) -> None:
    key = {"columns": ["a"], "table": "t", "snapshot": "reference data"}
    result = judge({"t": pa.table({"a": [1]})}, _column({"type": "int64"}, foreign_keys=[key]))
    (anomaly,) = _anomalies(store, result)
    assert anomaly["rule"] == "foreign_keys" and result.verdict == "fail"


def test_nothing_of_a_sensitive_column_shows_anywhere(judge: Validate, store: ArtifactStore) -> None:
    table = pa.table({"a": ["secret-1", "secret-2", "secret-2"], "b": [1, 2, 3]})
    rules = {
        "type": "string",
        "sensitive": True,
        "allowed": ["public"],
        "pattern": "p.*",
        "max_length": 3,
        "unique": True,
    }
    contract = {
        "t": {
            "columns": {"a": rules, "b": {"type": "int64", "max": 0}},
            "unique": [["a"]],
            "ordered": {"by": ["a"], "descending": True},
            "expressions": [{"name": "fits", "sql": "a = 'x'"}, {"name": "fails", "sql": "CAST(a AS INTEGER) > 0"}],
        }
    }
    result = judge({"t": table}, contract)
    assert "secret" not in shown(store, result)
    assert {one["rule"] for one in _anomalies(store, result)} >= {"allowed", "pattern", "max_length", "unique", "max"}


def test_a_sensitive_column_that_was_renamed_or_was_not_sensitive_yet_shows_nothing(
    judge: Validate, store: ArtifactStore
) -> None:
    open_contract = {"t": {"columns": {"mail": {"type": "string"}}, "extra_columns": "allow"}}
    before = judge({"t": pa.table({"mail": ["anna@example.org"] * 20})}, open_contract)
    closed = {"t": {"columns": {"mail": {"type": "string", "sensitive": True}}, "extra_columns": "allow"}}
    table = pa.table({"mail": ["bert@example.org"] * 20, "e_mail": ["carl@example.org"] * 20})
    found = judge({"t": table}, closed, baseline=before.validation)
    assert "example.org" in shown(store, before)
    assert "example.org" not in shown(store, found)


def test_no_message_shows_a_value_of_another_table_that_is_sensitive(judge: Validate, store: ArtifactStore) -> None:
    people = {"columns": {"mail": {"type": "string", "sensitive": True}}}
    key = {"columns": ["n"], "table": "people", "to": ["mail"]}
    orders = {"columns": {"n": {"type": "int64"}}, "foreign_keys": [key]}
    tables = {"people": pa.table({"mail": ["anna@example.org"]}), "orders": pa.table({"n": [1]})}
    result = judge(tables, {"people": people, "orders": orders})
    assert result.verdict == "fail"
    assert "anna" not in store.read_text(result.validation, "anomalies.json")


def test_columns_that_only_case_tells_apart_are_not_judged_as_each_other(judge: Validate, store: ArtifactStore) -> None:
    table = pa.table({"a": [1], "A": [99], "file_row_number": [1]})
    result = judge({"t": table}, {"t": {"columns": {"A": {"type": "int64", "max": 5}}, "extra_columns": "allow"}})
    assert result.verdict == "fail"
    assert [(one["rule"], one["observed"]) for one in _anomalies(store, result)] == [("column", "also a")]


def test_a_foreign_key_leads_to_a_table_of_any_name(judge: Validate) -> None:
    key = {"columns": ["a"], "table": "target"}
    contract = {
        "other": {"columns": {"a": {"type": "int64"}}, "foreign_keys": [key]},
        "target": {"columns": {"a": {"type": "int64"}}},
    }
    assert judge({"other": pa.table({"a": [7]}), "target": pa.table({"a": [1]})}, contract).verdict == "fail"


def test_an_empty_table_without_rules_breaks_none(judge: Validate) -> None:
    tables = {"t": pa.table({"a": [1]}), "u": pa.table({"a": pa.array([], pa.int64())})}
    assert judge(tables, _column({"type": "int64"})).verdict == "pass"


def test_a_time_beyond_the_calendar_is_not_fresh(judge: Validate, store: ArtifactStore) -> None:
    table = pa.table({"a": pa.array([2**62], pa.timestamp("us", "UTC"))})
    contract = _column({"type": "timestamp"}, freshness={"column": "a", "within": "P1D"})
    result = judge({"t": table}, contract)
    assert [one["rule"] for one in _anomalies(store, result)] == ["freshness"]


def test_every_function_that_differs_from_run_to_run_is_refused() -> None:
    unstable = "stability IN ('VOLATILE', 'CONSISTENT_WITHIN_QUERY')"
    query = f"SELECT DISTINCT function_name FROM duckdb_functions() WHERE {unstable}"
    calls = [f"{name}() = 1" for (name,) in duckdb.sql(query).fetchall()]
    for sql in (*calls, "age(a) > INTERVAL 1 DAY", "a < CURRENT_DATE"):
        with pytest.raises(ConfigurationError, match="differs from run to run"):
            parse_contract(yaml.safe_dump({"version": 1, "tables": _expression(sql)}))
    for sql in ("age(a, b) > INTERVAL 1 DAY", "stats > 1", "average = 2"):
        parse_contract(yaml.safe_dump({"version": 1, "tables": _expression(sql)}))


@pytest.mark.parametrize("pattern", ["(?=a)b", "a(?!b)", "(?<=a)b", r"(a)\1", "(?>a)b"])
def test_a_pattern_that_re2_does_not_know_is_refused_at_once(pattern: str) -> None:
    with pytest.raises(ConfigurationError, match="is not known to RE2"):
        parse_contract(yaml.safe_dump({"version": 1, "tables": _column({"type": "string", "pattern": pattern})}))


@pytest.mark.parametrize("pattern", [r"\(?a", "(?:a|b)+", "(?P<n>a)", r"\\(?:1)", "(?i)a", r"\(?=a"])
def test_a_pattern_that_re2_knows_is_taken(pattern: str) -> None:
    parse_contract(yaml.safe_dump({"version": 1, "tables": _column({"type": "string", "pattern": pattern})}))


@pytest.mark.parametrize("sql", ["true) OR (true", "(a > 1", "a > 1; DROP TABLE t"])
def test_an_expression_is_one(sql: str) -> None:
    with pytest.raises(ConfigurationError, match="expected one SQL expression"):
        parse_contract(yaml.safe_dump({"version": 1, "tables": _expression(sql)}))
    parse_contract(yaml.safe_dump({"version": 1, "tables": _expression("a IN (1, 2) AND b <> ');('")}))


def _expression(sql: str) -> dict[str, Any]:
    return _column({"type": "int64"}, expressions=[{"name": "stable", "sql": sql}])
