"""Judging a snapshot: every rule finds what breaks it, names rows in order, and never takes silence for a pass."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gatehouse.data.snapshot.stage import SnapshotRequest, snapshot
from gatehouse.data.sources.catalog import parse_source
from gatehouse.data.validation.anomalies import MOVEMENTS
from gatehouse.data.validation.contract import CONTRACT_FILE, contract_text, parse_contract
from gatehouse.data.validation.report import page
from gatehouse.data.validation.stage import ValidateRequest, ValidateResult, validate
from gatehouse.errors import ConfigurationError, ContractBreachError
from gatehouse.operations.preparing_stage import Requirement, require_contract
from gatehouse.store.store import ArtifactStore
from tests.data.validation.conftest import Validate, anomalies_of, column_contract, publish, shown

PROJECT = Path(__file__).parents[3] / "pipelines" / "projects" / "flights"
NAN = float("nan")


@pytest.mark.parametrize(
    ("values", "rules", "rule", "rows"),
    [
        (pa.array([1, None, 3]), {"type": "int64", "nullable": False}, "nullable", [1]),
        (pa.array([1, 5, None, 9]), {"type": "int64", "max": 4}, "max", [1, 3]),
        (pa.array([1, 5, None, 9]), {"type": "int64", "min": 4}, "min", [0]),
        (pa.array([1.0, NAN, None]), {"type": "double", "min": 0}, "min", [1]),
        (pa.array([1.0, NAN, None]), {"type": "double", "max": 2}, "max", [1]),
        (pa.array(["x", "y", None]), {"type": "string", "allowed": ["x"]}, "allowed", [1]),
        (pa.array(["x'", "y"]), {"type": "string", "allowed": ["x'"]}, "allowed", [1]),
        (pa.array([True, False]), {"type": "bool", "allowed": [True]}, "allowed", [1]),
        (pa.array(["N1", "xN1", "N1x", None]), {"type": "string", "pattern": "N[0-9]"}, "pattern", [1, 2]),
        (pa.array([1, 2, 1, None, None]), {"type": "int64", "unique": True}, "unique", [0, 2]),
        (pa.array([1, None, None, 4]), {"type": "int64", "completeness": 0.6}, "completeness", [1, 2]),
        (pa.array(["x", "xy", None, "✈"]), {"type": "string", "min_length": 2}, "min_length", [0, 3]),
        (pa.array(["x", "xy", "xyz", None]), {"type": "string", "max_length": 2}, "max_length", [2]),
    ],
)
def test_a_broken_rule_names_column_and_rows(
    judge: Validate, store: ArtifactStore, values: pa.Array, rules: dict[str, Any], rule: str, rows: list[int]
) -> None:
    result = judge({"t": pa.table({"a": values})}, column_contract(rules), rows_per_file=2)
    assert result.verdict == "fail"
    (anomaly,) = anomalies_of(store, result)
    assert (anomaly["table"], anomaly["column"], anomaly["rule"], anomaly["rows"]) == ("t", "a", rule, len(rows))
    assert [example["row"] for example in anomaly["examples"]] == rows
    assert result.reasons[0].startswith(f"t.a: {rule}: expected ")


def _times(*ages: timedelta | None) -> pa.Array:
    as_of = datetime(2024, 1, 10, tzinfo=UTC)
    return pa.array([None if age is None else as_of - age for age in ages], pa.timestamp("us", tz="UTC"))


INT, TEXT, TIME = {"type": "int64"}, {"type": "string"}, {"type": "timestamp"}
FRESH = {"column": "a", "within": "P2D"}
KEY = {"columns": ["a"], "table": "u", "to": ["b"]}
SMALL = {"name": "small", "sql": "a < 4"}


@pytest.mark.parametrize(
    ("values", "rules", "table", "broken"),
    [
        ([1, 3, None, None], INT | {"min": 1, "max": 3, "completeness": 0.5}, {}, []),
        ([1, 1, 2, 2, None, None], INT | {"min_distinct_share": 0.5, "max_distinct_share": 0.5}, {}, []),
        ([1, 1, 2, 2, None, None], INT | {"min_distinct_share": 0.51}, {}, ["min_distinct_share"]),
        ([1, 1, 2, 2, None, None], INT | {"max_distinct_share": 0.49}, {}, ["max_distinct_share"]),
        ([1, 2, 3, 4], INT, {"expressions": [SMALL]}, ["expression small"]),
        ([1, 2, 3, 4], INT, {"expressions": [SMALL | {"tolerance": 0.24}]}, ["expression small"]),
        ([1, 2, 3, 4], INT, {"expressions": [SMALL | {"tolerance": 0.25}]}, []),
        ([1], INT, {"min_rows": 2}, ["min_rows"]),
        (pa.array([], pa.int64()), INT | {"max": 1}, {}, ["min_rows"]),
        (_times(timedelta(days=2), None), TIME, {"freshness": FRESH}, []),
        (_times(timedelta(days=2, seconds=1), None), TIME, {"freshness": FRESH}, ["freshness"]),
        (pa.array([2**62], pa.timestamp("us", "UTC")), TIME, {"freshness": FRESH}, ["freshness"]),
        (["x", None], TEXT, {"foreign_keys": [KEY]}, []),
        (["x", "z", None], TEXT, {"foreign_keys": [KEY]}, ["foreign_keys"]),
        ([7], INT, {"foreign_keys": [KEY]}, ["foreign_keys"]),
        (["x"], TEXT, {"foreign_keys": [KEY | {"snapshot": "of nobody"}]}, ["foreign_keys"]),
    ],
)
def test_rules_hold_up_to_their_limits(
    judge: Validate, store: ArtifactStore, values: Any, rules: dict[str, Any], table: dict[str, Any], broken: list[str]
) -> None:
    contract = column_contract(rules, **table) | {"u": {"columns": {"b": TEXT}}}
    result = judge({"t": pa.table({"a": values}), "u": pa.table({"b": ["x", "y", None]})}, contract)
    assert [anomaly["rule"] for anomaly in anomalies_of(store, result)] == broken
    assert result.verdict == ("fail" if broken else "pass")
    assert all("in the contract" in reason and "ask its supplier" in reason for reason in result.reasons)


def test_columns_that_only_case_tells_apart_are_not_judged_as_each_other(judge: Validate, store: ArtifactStore) -> None:
    table = pa.table({"a": [1], "A": [99], "file_row_number": [1]})
    result = judge({"t": table}, {"t": {"columns": {"A": INT | {"max": 5}}, "extra_columns": "allow"}})
    assert [(anomaly["rule"], anomaly["observed"]) for anomaly in anomalies_of(store, result)] == [("column", "also a")]


def test_rules_under_warn_do_not_break_the_contract(judge: Validate, store: ArtifactStore) -> None:
    result = judge({"t": pa.table({"a": [1, 1048]})}, column_contract({"type": "int64", "warn": {"max": 150}}))
    assert (result.verdict, result.reasons) == ("pass", ())
    (anomaly,) = anomalies_of(store, result)
    assert (anomaly["severity"], anomaly["rule"]) == ("warn", "warn.max")
    assert anomaly["examples"] == [{"row": 1, "a": 1048}]


pairs = st.lists(st.tuples(st.none() | st.integers(0, 4), st.none() | st.integers(0, 4)), min_size=1, max_size=30)


# Shrinking a failure would judge hundreds of snapshots, for minutes.
@settings(
    max_examples=5,
    deadline=None,
    phases=[Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(cases=st.lists(pairs, min_size=5, max_size=5))
def test_counts_agree_with_a_row_by_row_reference(
    judge: Validate, store: ArtifactStore, cases: list[list[tuple[int | None, int | None]]]
) -> None:
    rules = {
        "unique": [["a", "b"]],
        "expressions": [{"name": "ordered", "sql": "a <= b -- a comment"}],
        "columns": {"a": {"type": "int64", "max": 3}, "b": {"type": "int64", "nullable": False}},
    }
    tables, expected = {}, {}
    for number, rows in enumerate(cases):
        columns = {name: pa.array([row[n] for row in rows], pa.int64()) for n, name in enumerate("ab")}
        tables[f"t{number}"] = pa.table(columns)
        counts = {
            "max": sum(a is not None and a > 3 for a, _ in rows),
            "nullable": sum(b is None for _, b in rows),
            "expression ordered": sum(a is not None and b is not None and a > b for a, b in rows),
            "unique": sum(rows.count(row) > 1 for row in rows),
        }
        expected |= {(f"t{number}", rule): count for rule, count in counts.items() if count}
    result = judge(tables, dict.fromkeys(tables, rules), rows_per_file=7)
    assert {(anomaly["table"], anomaly["rule"]): anomaly["rows"] for anomaly in anomalies_of(store, result)} == expected


@pytest.mark.parametrize("groups", ["n1", "1n", "nn", "nn 11", "11 nn", "1n 11"])
def test_a_nan_is_seen_in_whichever_row_group_it_stands(judge: Validate, store: ArtifactStore, groups: str) -> None:
    values = [NAN if value == "n" else 1.0 for value in groups.replace(" ", "")]
    expressions = [{"name": "below", "sql": "a <= 1"}, {"name": "equal", "sql": "a = 1"}]
    contract = column_contract({"type": "double", "min": 1, "max": 1}, expressions=expressions)
    anomalies = anomalies_of(store, judge({"t": pa.table({"a": values})}, contract, rows_per_group=2))
    assert {anomaly["rule"] for anomaly in anomalies} == {"min", "max", "expression below", "expression equal"}
    broken = [row for row, value in enumerate(values) if value != 1.0]
    assert all([example["row"] for example in anomaly["examples"]] == broken for anomaly in anomalies)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("b < 1", 'Referenced column "b" not found'),
        ("a + 1", "an expression of type BIGINT"),
        ("sum(a) > 1", "cannot be evaluated"),
        ("a <", "cannot be evaluated"),
        ("(a::VARCHAR || 'x')::BIGINT > 0", "Could not convert string"),
        ("(SELECT count(*) FROM read_csv('/etc/passwd')) > 0", "cannot be evaluated"),
    ],
)
def test_an_expression_that_cannot_run_is_an_anomaly(
    judge: Validate, store: ArtifactStore, sql: str, message: str
) -> None:
    expressions = [{"name": "wrong", "sql": sql}, {"name": "right", "sql": "a < 2"}]
    result = judge({"t": pa.table({"a": [1, 2]})}, column_contract({"type": "int64"}, expressions=expressions))
    anomalies = {anomaly["rule"]: anomaly for anomaly in anomalies_of(store, result)}
    assert message in anomalies["expression wrong"]["observed"]
    assert anomalies["expression right"]["rows"] == 1


def test_missing_tables_and_columns_and_other_types_are_anomalies(judge: Validate, store: ArtifactStore) -> None:
    columns = {"a": {"type": "string", "pattern": "x"}, "b": {"type": "int64", "min": 1}}
    contract = {"t": {"columns": columns, "unique": [["a", "b"]], "extra_columns": "fail"}, "u": {"columns": columns}}
    result = judge({"t": pa.table({"a": [1], "c": [2]}), "v": pa.table({"a": [1]})}, contract)
    anomalies = {(anomaly["table"], anomaly["column"], anomaly["rule"]) for anomaly in anomalies_of(store, result)}
    assert anomalies == {("u", "", "table"), ("t", "a", "type"), ("t", "b", "column"), ("t", "c", "extra_columns")}
    unjudged = "\n".join(store.read_json(result.validation, "verdict.json")["not_judged"])
    for part in ("t.a: its values", "t.b: its values", "t: unique, as a, b", "v: the contract has no rules"):
        assert part in unjudged


def test_bins_are_compared_by_their_names() -> None:
    before, now = {"nulls": 50, "counts": [50]}, {"nulls": 25, "counts": [75]}
    psi, js = MOVEMENTS["psi"].measure, MOVEMENTS["js"].measure
    assert psi(before, now) == pytest.approx(0.25 * np.log(0.75 / 0.5) - 0.25 * np.log(0.25 / 0.5))
    assert psi(before, before) == 0
    assert js({"nulls": 1}, {"nulls": 0, "zeros": 1}) == 1
    apart = {"nulls": 0, "values": [("a", 3)]}, {"nulls": 0, "values": [("b", 3)], "other": 1}
    assert js(*apart) == 1 and MOVEMENTS["linf"].measure(*apart) == 1


def test_two_stores_get_the_same_validation(store: ArtifactStore, judge: Validate, tmp_path: Path) -> None:
    table = pa.table({"a": np.random.default_rng(7).normal(0, 1, 50_000)})
    first = judge({"t": table}, column_contract({"type": "double", "max": 3}), rows_per_file=20_000)
    other = ArtifactStore.open(tmp_path / "other")
    text = json.dumps({"version": 1, "tables": column_contract({"type": "double", "max": 3})})
    contract = other.publish("config", "contract", {CONTRACT_FILE: text})
    request = ValidateRequest(snapshot=publish(other, {"t": table}, 20_000), contract=str(contract))
    assert validate(request, other) == first


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"version":1,"tables":{"t":{}}}', r"contract\.json:\n  - tables\.t\.columns: expected this key"),
        ("version: 1\ntables: {t: {}}\n", r"contract\.json: expected the JSON of a contract"),
    ],
)
def test_a_contract_that_is_none_is_a_configuration_error(store: ArtifactStore, text: str, message: str) -> None:
    contract = store.publish("config", "contract", {CONTRACT_FILE: text})
    taken = publish(store, {"t": pa.table({"a": [1]})})
    with pytest.raises(ConfigurationError, match=message):
        validate(ValidateRequest(snapshot=taken, contract=str(contract)), store)


def test_the_real_contract_on_real_weeks_and_on_a_broken_row(flights_archive: Path, store: ArtifactStore) -> None:
    source = parse_source(yaml.safe_load((PROJECT / "project.yaml").read_text())["source"])
    window = "2013-02-08/2013-02-15"
    taken = snapshot(SnapshotRequest(source=source, window=window, location=str(flights_archive)), store)
    promised = contract_text(parse_contract((PROJECT / "contract.yaml").read_text()))
    contract = store.publish("config", "c", {CONTRACT_FILE: promised})
    result = validate(ValidateRequest(snapshot=taken.snapshot, contract=str(contract)), store)
    assert (result.verdict, result.reasons) == ("pass", ())
    wind = [anomaly for anomaly in anomalies_of(store, result) if anomaly["column"] == "wind_speed"]
    assert [(anomaly["severity"], anomaly["rows"], anomaly["examples"][0]["wind_speed"]) for anomaly in wind] == [
        ("warn", 1, 1048.36058)
    ]

    import pyarrow.parquet as pq

    datasets = store.manifest(taken.snapshot).derived_from
    tables = {name: pq.ParquetDataset(store.paths(dataset)).read() for name, dataset in datasets.items()}
    flights = tables["flights"]
    origins = flights["origin"].to_pylist()
    origins[17] = "LAX"
    tables["flights"] = flights.set_column(flights.column_names.index("origin"), "origin", pa.array(origins))
    broken = validate(ValidateRequest(snapshot=publish(store, tables, 5000), contract=str(contract)), store)
    assert broken.verdict == "fail"
    assert "flights.origin: allowed: expected one of EWR, JFK, LGA" in page(store, broken.validation)
    with pytest.raises(ContractBreachError, match=r"flights\.origin: allowed: .* found 1 of 6,125 rows .*\(row 17\)"):
        require_contract(Requirement(verdict=broken.verdict, reasons=broken.reasons, report=broken.validation), store)


def test_a_rule_that_needs_values_of_what_the_source_hides_is_refused(store: ArtifactStore) -> None:
    columns = {"a": {"type": "int64", "warn": {"psi": 0.2}}, "b": {"type": "int64", "mean_shift": 1}}
    text = json.dumps({"version": 1, "tables": {"t": {"columns": columns}}})
    contract = str(store.publish("config", "contract", {CONTRACT_FILE: text}))
    snapshot = publish(store, {"t": pa.table({"a": [1], "b": [1]})}, sensitive=("a",))
    with pytest.raises(ConfigurationError, match=r"source declares sensitive.*\n.*t\.columns\.a\.warn\.psi: needs"):
        validate(ValidateRequest(snapshot=snapshot, contract=contract), store)


@pytest.mark.parametrize("copies", [1, 50])
def test_every_row_of_a_value_that_breaks_a_rule_is_counted(judge: Validate, store: ArtifactStore, copies: int) -> None:
    table = pa.table({"a": pa.array(["ok", "b\n", None, "Ünï", "ok2"] * copies)})
    rules = {"type": "string", "pattern": "[a-z]+[0-9]?", "allowed": ["ok", "b\n", "Ünï"], "nullable": False}
    result = judge({"t": table}, column_contract(rules))
    anomalies = {anomaly["rule"]: anomaly for anomaly in anomalies_of(store, result)}
    broken = {rule: anomaly["rows"] for rule, anomaly in anomalies.items()}
    assert broken == {"nullable": copies, "pattern": 2 * copies, "allowed": copies}
    assert anomalies["allowed"]["examples"][0] == {"row": 4, "a": "ok2"}


def test_a_rule_carries_its_own_severity_and_owner(judge: Validate, store: ArtifactStore) -> None:
    contract = column_contract(
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
    anomalies = {(anomaly["rule"], anomaly["severity"], anomaly["owner"]) for anomaly in anomalies_of(store, result)}
    assert result.verdict == "fail"
    assert anomalies == {
        ("max", "warn", "rule"),
        ("allowed", "fail", "column"),
        ("unique", "warn", "column"),
        ("unique", "warn", "table"),
        ("min_rows", "warn", "table"),
    }


def _brute_misplaced(values: list[tuple[int | None, int | None]], descending: bool, strictly: bool) -> list[int]:
    rows = []
    for index in range(1, len(values)):
        before, now = values[index - 1], values[index]
        if None in before or None in now:
            continue
        kept = now <= before if descending else now >= before  # type: ignore[operator]  # no None is left
        if strictly:
            kept = kept and now != before
        if not kept:
            rows.append(index)
    return rows


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
    anomalies = {anomaly["table"]: anomaly for anomaly in anomalies_of(store, judge(tables, contract, rows_per_file=3))}
    for number, case in enumerate(cases):
        rows, anomaly = _brute_misplaced(*case), anomalies.get(f"t{number}", {"rows": 0, "examples": []})
        assert anomaly["rows"] == len(rows)
        assert [example["row"] for example in anomaly["examples"]] == rows[:5]


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
    contract = column_contract({"type": "double", rule: limit})
    assert _against(store, before, same, contract).verdict == "pass"
    result = _against(store, before, moved, contract)
    (anomaly,) = anomalies_of(store, result)
    assert (anomaly["rule"], anomaly["column"], result.verdict) == (rule, "a", "fail")


def test_without_a_baseline_nothing_moves_and_that_is_said(judge: Validate, store: ArtifactStore) -> None:
    contract = column_contract({"type": "double", **MOVED}, min_rows_ratio=0.5)
    result = judge({"t": pa.table({"a": [1.0]})}, contract)
    assert result.verdict == "pass"
    assert store.read_json(result.validation, "verdict.json")["not_judged"] == [
        "t: min_rows_ratio, as there is no baseline"
    ] + [f"t.a: {rule}, as there is no baseline" for rule in MOVED]


@pytest.mark.parametrize(("rows", "rule"), [(4, "min_rows_ratio"), (5, ""), (20, ""), (21, "max_rows_ratio")])
def test_row_counts_are_compared_with_the_baseline(store: ArtifactStore, rows: int, rule: str) -> None:
    contract = column_contract({"type": "int64"}, min_rows_ratio=0.5, max_rows_ratio=2.0)
    before, now = pa.table({"a": list(range(10))}), pa.table({"a": list(range(rows))})
    anomalies = anomalies_of(store, _against(store, before, now, contract))
    assert [anomaly["rule"] for anomaly in anomalies] == ([rule] if rule else [])


@pytest.mark.parametrize("named", [True, False])
def test_a_key_may_lead_to_another_snapshot(store: ArtifactStore, named: bool) -> None:
    other = publish(store, {"t": pa.table({"id": [1, 2]})})
    key = {"columns": ["a"], "table": "t", "to": ["id"], "snapshot": "reference data" if named else other}
    text = json.dumps({"version": 1, "tables": column_contract({"type": "int64"}, foreign_keys=[key])})
    contract = str(store.publish("config", "contract", {CONTRACT_FILE: text}))
    snapshot = publish(store, {"t": pa.table({"a": [1, 3, None]})})
    snapshots = {"reference data": other} if named else {}
    result = validate(ValidateRequest(snapshot=snapshot, contract=contract, snapshots=snapshots), store)
    (anomaly,) = anomalies_of(store, result)
    assert (anomaly["rule"], anomaly["rows"], anomaly["examples"][0]["row"]) == ("foreign_keys", 1, 1)
    assert other in store.manifest(result.validation).derived_from.values()


def test_nothing_of_a_sensitive_column_shows_anywhere(judge: Validate, store: ArtifactStore) -> None:
    table = pa.table({"a": ["secret-1", "secret-2", "secret-2"], "b": [1, 2, 3]})
    rules = {"type": "string", "sensitive": True, "allowed": ["public"], "pattern": "p.*", "max_length": 3}
    rules |= {"unique": True}
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
    broken = {anomaly["rule"] for anomaly in anomalies_of(store, result)}
    assert broken >= {"allowed", "pattern", "max_length", "unique", "max"}


def test_a_sensitive_column_that_was_renamed_or_was_not_sensitive_yet_shows_nothing(
    judge: Validate, store: ArtifactStore
) -> None:
    open_contract = {"t": {"columns": {"mail": {"type": "string"}}, "extra_columns": "allow"}}
    before = judge({"t": pa.table({"mail": ["anna@example.org"] * 20})}, open_contract)
    closed = {"t": {"columns": {"mail": {"type": "string", "sensitive": True}}, "extra_columns": "allow"}}
    table = pa.table({"mail": ["bert@example.org"] * 20, "e_mail": ["carl@example.org"] * 20})
    after = judge({"t": table}, closed, baseline=before.validation)
    assert "example.org" in shown(store, before)
    assert "example.org" not in shown(store, after)


def test_no_message_shows_a_value_of_another_table_that_is_sensitive(judge: Validate, store: ArtifactStore) -> None:
    people = {"columns": {"mail": {"type": "string", "sensitive": True}}}
    key = {"columns": ["n"], "table": "people", "to": ["mail"]}
    orders = {"columns": {"n": {"type": "int64"}}, "foreign_keys": [key]}
    tables = {"people": pa.table({"mail": ["anna@example.org"]}), "orders": pa.table({"n": [1]})}
    result = judge(tables, {"people": people, "orders": orders})
    assert result.verdict == "fail"
    assert "anna" not in store.read_text(result.validation, "anomalies.json")
