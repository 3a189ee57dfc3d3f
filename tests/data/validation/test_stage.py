"""Judging a snapshot: every rule finds what breaks it, names rows in order, and never takes silence for a pass."""

import itertools
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
from gatehouse.data.statistics.measurement import measurement
from gatehouse.data.validation.contract import CONTRACT_FILE, contract_text, parse_contract
from gatehouse.data.validation.movement import MOVEMENTS
from gatehouse.data.validation.report import page
from gatehouse.data.validation.stage import ValidateRequest, ValidateResult, validate
from gatehouse.errors import ConfigurationError, ContractBreachError
from gatehouse.operations.requiring.stage import Requirement, require_contract
from gatehouse.store.store import ArtifactStore
from tests.data.validation.conftest import Validate, publish, shown

PROJECT = Path(__file__).parents[3] / "pipelines" / "projects" / "flights"
NAN = float("nan")


def _anomalies(store: ArtifactStore, result: ValidateResult) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = store.read_json(result.validation, "anomalies.json")
    return found


def _statistics(store: ArtifactStore, result: ValidateResult) -> dict[str, Any]:
    measured = measurement(store, store.manifest(result.validation).derived_from["statistics"])
    return dict(measured.statistics["t"])


def _column(rules: dict[str, Any], **table: Any) -> dict[str, Any]:
    return {"t": {"columns": {"a": rules}} | table}


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
    ],
)
def test_a_broken_rule_names_column_and_rows(
    judge: Validate, store: ArtifactStore, values: pa.Array, rules: dict[str, Any], rule: str, rows: list[int]
) -> None:
    result = judge({"t": pa.table({"a": values})}, _column(rules), rows_per_file=2)
    assert result.verdict == "fail"
    (anomaly,) = _anomalies(store, result)
    assert (anomaly["table"], anomaly["column"], anomaly["rule"], anomaly["rows"]) == ("t", "a", rule, len(rows))
    assert [example["row"] for example in anomaly["examples"]] == rows
    assert result.reasons[0].startswith(f"t.a: {rule}: expected ")


def test_bounds_themselves_are_inside(judge: Validate) -> None:
    rules = {"type": "int64", "min": 1, "max": 3, "completeness": 0.5}
    assert judge({"t": pa.table({"a": [1, 3, None, None]})}, _column(rules)).verdict == "pass"


def test_rules_under_warn_do_not_break_the_contract(judge: Validate, store: ArtifactStore) -> None:
    result = judge({"t": pa.table({"a": [1, 1048]})}, _column({"type": "int64", "warn": {"max": 150}}))
    assert (result.verdict, result.reasons) == ("pass", ())
    (anomaly,) = _anomalies(store, result)
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
    assert {(one["table"], one["rule"]): one["rows"] for one in _anomalies(store, result)} == expected


@pytest.mark.parametrize("sql", ["a <= 1", "a = 1", "NOT (a > 1)", "isfinite(a)", "a < 2"])
def test_a_nan_that_the_statistics_of_parquet_hide_is_seen(judge: Validate, store: ArtifactStore, sql: str) -> None:
    expressions = [{"name": "kept", "sql": sql}]
    result = judge({"t": pa.table({"a": [1.0, NAN]})}, _column({"type": "double"}, expressions=expressions))
    (anomaly,) = _anomalies(store, result)
    assert (anomaly["rows"], anomaly["examples"]) == (1, [{"row": 1, "a": "NaN"}])


@pytest.mark.parametrize("groups", ["n1", "1n", "nn", "nn 11", "11 nn", "1n 11"])
def test_a_nan_is_seen_in_whichever_row_group_it_stands(judge: Validate, store: ArtifactStore, groups: str) -> None:
    values = [NAN if value == "n" else 1.0 for value in groups.replace(" ", "")]
    expressions = [{"name": "below", "sql": "a <= 1"}, {"name": "equal", "sql": "a = 1"}]
    contract = _column({"type": "double", "min": 1, "max": 1}, expressions=expressions)
    found = _anomalies(store, judge({"t": pa.table({"a": values})}, contract, rows_per_group=2))
    assert {one["rule"] for one in found} == {"min", "max", "expression below", "expression equal"}
    broken = [row for row, value in enumerate(values) if value != 1.0]
    assert all([example["row"] for example in one["examples"]] == broken for one in found)


@pytest.mark.parametrize(("tolerance", "verdict"), [(0.0, "fail"), (0.24, "fail"), (0.25, "pass")])
def test_a_tolerance_is_a_share_of_the_rows(judge: Validate, tolerance: float, verdict: str) -> None:
    expressions = [{"name": "small", "sql": "a < 4", "tolerance": tolerance}]
    result = judge({"t": pa.table({"a": [1, 2, 3, 4]})}, _column({"type": "int64"}, expressions=expressions))
    assert result.verdict == verdict


@pytest.mark.parametrize(
    ("sql", "said"),
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
    judge: Validate, store: ArtifactStore, sql: str, said: str
) -> None:
    expressions = [{"name": "wrong", "sql": sql}, {"name": "right", "sql": "a < 2"}]
    result = judge({"t": pa.table({"a": [1, 2]})}, _column({"type": "int64"}, expressions=expressions))
    found = {one["rule"]: one for one in _anomalies(store, result)}
    assert said in found["expression wrong"]["observed"]
    assert found["expression right"]["rows"] == 1


def test_missing_tables_and_columns_and_other_types_are_anomalies(judge: Validate, store: ArtifactStore) -> None:
    columns = {"a": {"type": "string", "pattern": "x"}, "b": {"type": "int64", "min": 1}}
    contract = {"t": {"columns": columns, "unique": [["a", "b"]], "extra_columns": "fail"}, "u": {"columns": columns}}
    result = judge({"t": pa.table({"a": [1], "c": [2]}), "v": pa.table({"a": [1]})}, contract)
    found = {(one["table"], one["column"], one["rule"]) for one in _anomalies(store, result)}
    assert found == {("u", "", "table"), ("t", "a", "type"), ("t", "b", "column"), ("t", "c", "extra_columns")}
    unjudged = "\n".join(store.read_json(result.validation, "verdict.json")["not_judged"])
    for part in ("t.a: its values", "t.b: its values", "t: unique, as a, b", "v: the contract has no rules"):
        assert part in unjudged


def test_row_counts_and_an_empty_table(judge: Validate) -> None:
    few = judge({"t": pa.table({"a": [1]})}, _column({"type": "int64"}, min_rows=2))
    (said,) = few.reasons
    assert said == (
        "t: min_rows: expected at least 2 rows, found 1 rows; ask its supplier to correct the data, or change "
        "min_rows of t in the contract"
    )
    empty = judge({"t": pa.table({"a": pa.array([], pa.int64())})}, _column({"type": "int64", "max": 1}))
    assert empty.verdict == "fail"


@pytest.mark.parametrize(("age", "verdict"), [(timedelta(days=2), "pass"), (timedelta(days=2, seconds=1), "fail")])
def test_freshness_is_judged_against_as_of(judge: Validate, age: timedelta, verdict: str) -> None:
    times = pa.array([datetime(2024, 1, 10, tzinfo=UTC) - age, None], pa.timestamp("us", tz="UTC"))
    table = _column({"type": "timestamp"}, freshness={"column": "a", "within": "P2D"})
    assert judge({"t": pa.table({"a": times})}, table).verdict == verdict


def test_foreign_keys_skip_nulls_and_name_rows(judge: Validate, store: ArtifactStore) -> None:
    contract = _column({"type": "string"}, foreign_keys=[{"columns": ["a"], "table": "u", "to": ["b"]}])
    contract["u"] = {"columns": {"b": {"type": "string"}}}
    tables = {"t": pa.table({"a": ["x", None, "z"]}), "u": pa.table({"b": ["x", "y", None]})}
    (anomaly,) = _anomalies(store, judge(tables, contract))
    assert anomaly["examples"] == [{"row": 2, "a": "z"}]


def test_a_sensitive_value_appears_nowhere(judge: Validate, store: ArtifactStore) -> None:
    table = pa.table({"a": ["secret-one", "secret-one"], "b": [41234, 51234]})
    columns = {
        "a": {"type": "string", "sensitive": True, "unique": True, "pattern": "x"},
        "b": {"type": "int64", "sensitive": True, "max": 1},
    }
    expressions = [{"name": "convertible", "sql": "a::BIGINT > b"}]
    result = judge({"t": table}, {"t": {"columns": columns, "unique": [["a"]], "expressions": expressions}})
    assert len(_anomalies(store, result)) == 5
    written = shown(store, result) + json.dumps(result.reasons)
    assert "(redacted)" in written
    assert not [value for value in ("secret", "41234", "51234") if value in written]


def test_statistics_are_those_of_numpy(judge: Validate, store: ArtifactStore) -> None:
    values = np.random.default_rng(7).normal(5, 2, 3000).round(3)
    values[:500] = 0
    table = pa.table(
        {"a": pa.array([*values.tolist(), None, NAN]), "s": pa.array(["x", "y", "y"] * 1000 + [None, "z"])}
    )
    result = judge({"t": table}, {"t": {"columns": {"a": {"type": "double"}, "s": {"type": "string"}}}})
    found = _statistics(store, result)
    a = found["a"]
    assert (a["nulls"], a["not_finite"], a["zeros"]) == (1, 1, int((values == 0).sum()))
    assert (a["min"], a["max"]) == (values.min(), values.max())
    assert a["mean"] == pytest.approx(values.mean(), rel=1e-12)
    assert a["std"] == pytest.approx(values.std(ddof=1), rel=1e-9)
    assert a["median"] == pytest.approx(np.median(values), abs=0.05)
    inside = values[values != 0]
    edges = [-np.inf, *a["edges"], np.inf]
    expected = [int(((inside > low) & (inside <= high)).sum()) for low, high in itertools.pairwise(edges)]
    assert a["counts"] == expected
    assert found["s"]["values"] == [["y", 2000], ["x", 1000], ["z", 1]]


def test_drift_is_judged_against_a_baseline_and_not_without(judge: Validate, store: ArtifactStore) -> None:
    generator = np.random.default_rng(7)
    before, moved = generator.normal(0, 1, 4000), generator.normal(1, 1, 4000)
    contract = _column({"type": "double", "psi": 0.2})
    first = judge({"t": pa.table({"a": before})}, contract)
    unjudged = store.read_json(first.validation, "verdict.json")["not_judged"]
    assert unjudged == ["t.a: psi, as there is no baseline"]
    assert judge({"t": pa.table({"a": before[::-1]})}, contract, first.validation).verdict == "pass"
    drifted = judge({"t": pa.table({"a": moved})}, contract, first.validation)
    assert drifted.verdict == "fail"
    assert "t.a: psi: expected a population stability index of at most 0.2, found" in drifted.reasons[0]


def test_drift_of_a_mostly_zero_column_is_seen(judge: Validate) -> None:
    dry, wet = [0.0] * 990 + [1.0] * 10, [0.0] * 800 + [1.0] * 200
    contract = _column({"type": "double", "psi": 0.2})
    first = judge({"t": pa.table({"a": dry})}, contract)
    assert judge({"t": pa.table({"a": wet})}, contract, first.validation).verdict == "fail"


def test_the_median_of_a_mostly_zero_column_is_zero(judge: Validate, store: ArtifactStore) -> None:
    result = judge({"t": pa.table({"a": [0.0] * 900 + [1.0] * 100})}, _column({"type": "double"}))
    assert _statistics(store, result)["a"]["median"] == 0


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
    first = judge({"t": table}, _column({"type": "double", "max": 3}), rows_per_file=20_000)
    other = ArtifactStore.open(tmp_path / "other")
    text = json.dumps({"version": 1, "tables": _column({"type": "double", "max": 3})})
    contract = other.publish("config", "contract", {CONTRACT_FILE: text})
    request = ValidateRequest(snapshot=publish(other, {"t": table}, 20_000), contract=str(contract))
    assert validate(request, other) == first


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"version":1,"tables":{"t":{}}}', r"contract\.json: tables\.t\.columns: Field required"),
        ("version: 1\ntables: {t: {}}\n", r"contract\.json: expected the JSON of a contract"),
    ],
)
def test_a_contract_that_is_none_is_a_configuration_error(store: ArtifactStore, text: str, said: str) -> None:
    contract = store.publish("config", "contract", {CONTRACT_FILE: text})
    taken = publish(store, {"t": pa.table({"a": [1]})})
    with pytest.raises(ConfigurationError, match=said):
        validate(ValidateRequest(snapshot=taken, contract=str(contract)), store)


def test_the_real_contract_on_real_weeks_and_on_a_broken_row(flights_archive: Path, store: ArtifactStore) -> None:
    source = parse_source(yaml.safe_load((PROJECT / "project.yaml").read_text())["source"])
    window = "2013-02-08/2013-02-15"
    taken = snapshot(SnapshotRequest(source=source, window=window, location=str(flights_archive)), store)
    promised = contract_text(parse_contract((PROJECT / "contract.yaml").read_text()))
    contract = store.publish("config", "c", {CONTRACT_FILE: promised})
    result = validate(ValidateRequest(snapshot=taken.snapshot, contract=str(contract)), store)
    assert (result.verdict, result.reasons) == ("pass", ())
    wind = [one for one in _anomalies(store, result) if one["column"] == "wind_speed"]
    assert [(one["severity"], one["rows"], one["examples"][0]["wind_speed"]) for one in wind] == [
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


def test_what_guards_said_of_the_delivery_is_on_the_record(store: ArtifactStore) -> None:
    text = json.dumps({"version": 1, "tables": {"t": {"columns": {"a": {"type": "int64"}}}}})
    contract = str(store.publish("config", "contract", {CONTRACT_FILE: text}))
    request = ValidateRequest(snapshot=publish(store, {"t": pa.table({"a": [1]})}), contract=contract)
    said = ("Table t: rewrite: 3 rows changed, such as a=17.",)
    result = validate(request.model_copy(update={"delivery": said}), store)
    # The manifest stays after an erasure.
    assert store.manifest(result.validation).details["warnings"] == ["Table t: rewrite"]
    assert said[0] in page(store, result.validation)
    assert result.warnings == ()  # The snapshot's own result told the reader.


def test_a_rule_that_needs_values_of_what_the_source_hides_is_refused(store: ArtifactStore) -> None:
    columns = {"a": {"type": "int64", "warn": {"psi": 0.2}}, "b": {"type": "int64", "mean_shift": 1}}
    text = json.dumps({"version": 1, "tables": {"t": {"columns": columns}}})
    contract = str(store.publish("config", "contract", {CONTRACT_FILE: text}))
    snapshot = publish(store, {"t": pa.table({"a": [1], "b": [1]})}, sensitive=("a",))
    with pytest.raises(ConfigurationError, match=r"source declares sensitive.*\n.*t\.columns\.a\.warn\.psi: needs"):
        validate(ValidateRequest(snapshot=snapshot, contract=contract), store)


def test_a_table_without_rules_keeps_what_its_source_hides(store: ArtifactStore) -> None:
    contract = {"version": 1, "tables": {"t": {"columns": {"a": {"type": "int64"}}}}}
    reference = str(store.publish("config", "contract", {CONTRACT_FILE: json.dumps(contract)}))
    tables = {"t": pa.table({"a": [1, 2]}), "other": pa.table({"name": ["Slartibartfast"], "b": ["shown"]})}
    snapshot = publish(store, tables, sensitive=("name",))
    result = validate(ValidateRequest(snapshot=snapshot, contract=reference), store)
    assert "Slartibartfast" not in shown(store, result)


def test_the_manifest_tells_of_warnings_without_values_of_rows(store: ArtifactStore) -> None:
    column = {"type": "int64", "max": {"value": 10, "severity": "warn"}}
    text = json.dumps({"version": 1, "tables": {"t": {"columns": {"a": column}}}})
    contract = str(store.publish("config", "contract", {CONTRACT_FILE: text}))
    request = ValidateRequest(snapshot=publish(store, {"t": pa.table({"a": [1, 99]})}), contract=contract)
    result = validate(request, store)
    assert "found 1 of 2 rows" in result.warnings[0]
    assert store.manifest(result.validation).details["warnings"] == ["t.a: max does not hold"]
