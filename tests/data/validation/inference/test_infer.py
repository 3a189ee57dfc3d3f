"""A contract inferred from a snapshot: the snapshot keeps it, a corrupted copy does not, and it reads well."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from gatehouse.cli.data import app
from gatehouse.data.validation.contract import CONTRACT_FILE, Contract, contract_text, parse_contract
from gatehouse.data.validation.inference.infer import infer_contract
from gatehouse.data.validation.inference.profile import _WIDE
from gatehouse.data.validation.stage import ValidateRequest, ValidateResult, validate
from gatehouse.errors import ConfigurationError
from gatehouse.store.store import ArtifactStore
from tests.data.validation.conftest import AS_OF, publish

ROWS = 1200
START = datetime(2024, 1, 1, tzinfo=UTC)
TIME = pa.timestamp("us", tz="UTC")

_TYPES: dict[Any, st.SearchStrategy[Any]] = {
    pa.int64(): st.sampled_from([0, 1, 7, -(2**63), 2**63 - 1]) | st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats() | st.sampled_from([0.0, -0.0, 5e-324, 1.7976931348623157e308]),
    pa.string(): st.sampled_from(["", "a", "no", "null", "1", "ß\u2028", "\x85", "a: {b", "#", "'\"", "\ufeff", "🜁\n"])
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=70),
    pa.bool_(): st.booleans(),
    TIME: st.integers(-(2**60), 2**60) | st.just(1_700_000_000_000_000),
}
_NAMES = st.sampled_from(
    ["a", "null", "yes", "1", "a b", "x: y", "- z", "#", '"', "'", "é", "order", "email", "select", "a,b]", "{", "~"]
) | st.text(st.characters(categories=["L", "N", "P", "S", "Zs"], max_codepoint=0x2FFF), min_size=1, max_size=12)


@st.composite
def _tables(draw: st.DrawFn) -> pa.Table:
    """Small tables of all types, and some of many rows, whose columns repeat a few values."""
    rows = draw(st.sampled_from([0, 1, 3, 25, 130, 1050]))
    names = draw(st.lists(_NAMES, min_size=1, max_size=5, unique_by=str.casefold))
    columns = {}
    for name in names:
        kind = draw(st.sampled_from(list(_TYPES)))
        some = draw(st.lists(st.none() | _TYPES[kind], min_size=1, max_size=12))
        columns[name] = pa.array([some[row % len(some)] for row in range(rows)], kind)
    return pa.table(columns)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> ArtifactStore:
    """One store for all examples of a property: each has a digest of its own."""
    return ArtifactStore.open(tmp_path_factory.mktemp("inference") / "store")


def _validate(store: ArtifactStore, snapshot: str, contract: str, baseline: str = "") -> ValidateResult:
    reference = str(store.publish("config", "contract", {CONTRACT_FILE: contract_text(parse_contract(contract))}))
    return validate(ValidateRequest(snapshot=snapshot, contract=reference, baseline=baseline), store)


def _anomalies(store: ArtifactStore, result: ValidateResult) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = store.read_json(result.validation, "anomalies.json")
    return found


# Shrinking a failure would judge hundreds of snapshots, for minutes.
@settings(
    max_examples=25,
    deadline=None,
    phases=[Phase.reuse, Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(first=_tables(), second=_tables())
def test_the_snapshot_keeps_the_contract_inferred_from_it(
    shared: ArtifactStore, first: pa.Table, second: pa.Table
) -> None:
    snapshot = publish(shared, {"t": first, "null": second}, rows_per_file=100)
    contract = infer_contract(shared, snapshot)
    assert set(parse_contract(contract).tables["t"].columns) == set(first.column_names)
    infinite = {
        (name, column)
        for name, table in (("t", first), ("null", second))
        for column in table.column_names
        if pa.types.is_floating(table[column].type) and pc.any(pc.is_inf(table[column])).as_py()
    }
    found = _anomalies(shared, _validate(shared, snapshot, contract))
    # An infinity breaks any bound, so it only warns of them.
    assert [one for one in found if one["severity"] == "fail" or (one["table"], one["column"]) not in infinite] == []


def _customers(rows: int = 60) -> pa.Table:
    return pa.table({"id": list(range(rows)), "email": [f"person{row}@example.org" for row in range(rows)]})


def _orders(rows: int = ROWS) -> pa.Table:
    return pa.table(
        {
            "order_id": [f"AB-{row:05d}" for row in range(rows)],
            "customer_id": [row * 7 % 60 for row in range(rows)],
            "state": [("new", "paid", "sent")[row % 3] for row in range(rows)],
            "amount": [1.5 + row % 97 for row in range(rows)],
            "placed_at": pa.array([START + timedelta(minutes=10 * row) for row in range(rows)], TIME),
            "note": [None if row % 5 == 0 else "once more " * (row % 9 + 1) + str(row) for row in range(rows)],
            "month": [row % 12 + 1 for row in range(rows)],
        }
    )


def _lines(rows: int = ROWS) -> pa.Table:
    return pa.table({"order_no": [row // 4 for row in range(rows)], "line": [row % 4 for row in range(rows)]})


def _snapshot(store: ArtifactStore, **changed: pa.Table) -> str:
    return publish(store, {"orders": _orders(), "customers": _customers(), "lines": _lines()} | changed)


def _inferred(store: ArtifactStore) -> Contract:
    return parse_contract(infer_contract(store, _snapshot(store)))


def test_a_table_as_new_as_its_snapshot_is_said_to_be(store: ArtifactStore) -> None:
    times = pa.table({"at": [datetime.fromisoformat(AS_OF) - timedelta(hours=hours) for hours in range(30)]})
    assert "# The newest at is that of the snapshot." in infer_contract(store, publish(store, {"t": times}))


def _put(table: pa.Table, column: str, value: Any, row: int = 40) -> pa.Table:
    values = table[column].to_pylist()
    values[row] = value
    kind = table.schema.field(column).type
    return table.set_column(table.column_names.index(column), column, pa.array(values, kind))


def test_it_is_kept_against_itself_as_baseline(store: ArtifactStore) -> None:
    snapshot = _snapshot(store)
    contract = infer_contract(store, snapshot)
    first = _validate(store, snapshot, contract)
    second = _validate(store, snapshot, contract, baseline=first.validation)
    assert _anomalies(store, first) == _anomalies(store, second) == []


@pytest.mark.parametrize(
    ("table", "corrupted", "rule"),
    [
        ("orders", _put(_orders(), "amount", 1e6), "max"),
        ("orders", _put(_orders(), "amount", -5.0), "min"),
        ("orders", _put(_orders(), "amount", float("nan")), "max"),
        ("orders", _put(_orders(), "month", 13), "max"),
        ("orders", _put(_orders(), "state", "lost"), "allowed"),
        ("orders", _put(_orders(), "state", None), "nullable"),
        ("orders", _put(_orders(), "order_id", "AB-00001"), "unique"),
        ("orders", _put(_orders(), "order_id", "ab/1"), "pattern"),
        ("orders", _put(_orders(), "customer_id", 59_000), "foreign_keys"),
        ("orders", _put(_orders(), "placed_at", START), "ordered"),
        ("orders", _put(_orders(), "placed_at", START + timedelta(days=9000)), "max"),
        ("orders", _put(_orders(), "note", "x" * 5000), "max_length"),
        ("orders", _orders().set_column(5, "note", pa.nulls(ROWS, pa.string())), "completeness"),
        ("orders", _orders().drop_columns(["month"]), "column"),
        ("orders", _orders().set_column(6, "month", pa.array(["1"] * ROWS)), "type"),
        ("orders", _orders(300), "min_rows"),
        ("orders", _orders(700), "freshness"),
        ("lines", _put(_lines(), "line", 0, row=1), "unique"),
    ],
)
def test_a_corrupted_copy_breaks_it(store: ArtifactStore, table: str, corrupted: pa.Table, rule: str) -> None:
    contract = infer_contract(store, _snapshot(store))
    result = _validate(store, _snapshot(store, **{table: corrupted}), contract)
    broken = {one["rule"] for one in _anomalies(store, result) if one["severity"] == "fail"}
    assert result.verdict == "fail"
    assert rule in broken


def test_bounds_are_round_and_have_room(store: ArtifactStore) -> None:
    columns = _inferred(store).tables["orders"].columns
    amount, month = columns["amount"], columns["month"]
    assert amount.min and amount.max and month.min and month.max
    assert (amount.min.value, amount.max.value) == (0, 108)
    assert (month.min.value, month.max.value) == (1, 12), "what counts from 1 ends where it ends"


def test_keys_order_and_freshness_are_found(store: ArtifactStore) -> None:
    tables = _inferred(store).tables
    assert tables["orders"].columns["order_id"].unique
    assert [key.columns for key in tables["lines"].unique] == [("order_no", "line")]
    assert tables["orders"].ordered is not None
    assert tables["orders"].ordered.by == ("placed_at",)
    assert tables["orders"].freshness is not None
    assert tables["orders"].freshness.within == timedelta(days=2), "twice the age of the newest row, rounded up"
    assert [(key.columns, key.table, key.to) for key in tables["orders"].foreign_keys] == [
        (("customer_id",), "customers", ("id",))
    ]


def test_a_foreign_key_has_a_tolerance_where_a_few_rows_have_no_match(store: ArtifactStore) -> None:
    for row, found in ((3, 1), (30, 0)):
        customer = [100 if order < row else order % 60 for order in range(ROWS)]
        orders = _orders().set_column(1, "customer_id", pa.array(customer))
        keys = parse_contract(infer_contract(store, _snapshot(store, orders=orders))).tables["orders"].foreign_keys
        assert len(keys) == found
        assert all(0.0025 <= key.tolerance < 0.01 for key in keys)


def test_a_personal_column_is_marked_and_none_of_its_values_written(store: ArtifactStore) -> None:
    people = pa.table({"Email": ["one@example.org", "two@example.org"] * 300, "phoneNumber": [5550100, 5550199] * 300})
    text = infer_contract(store, publish(store, {"people": people}))
    columns = parse_contract(text).tables["people"].columns
    assert all(column.sensitive and column.allowed is None and column.min is None for column in columns.values())
    assert "example" not in text
    assert "5,550" not in text
    assert "5550" not in text


def test_a_rare_value_only_warns(store: ArtifactStore) -> None:
    table = pa.table({"kind": ["a"] * 500 + ["b"] * 500 + ["c"]})
    column = parse_contract(infer_contract(store, publish(store, {"t": table}))).tables["t"].columns["kind"]
    assert column.allowed is None
    assert column.warn is not None
    assert column.warn.allowed is not None


def test_what_may_grow_or_repeat_tomorrow_breaks_no_contract(store: ArtifactStore) -> None:
    rows = range(ROWS)
    columns = {
        "at": pa.array([START + timedelta(minutes=row) for row in rows], TIME),
        "size": [row + 0.5 for row in rows],
    }
    table = pa.table(columns | {"items": [1 + row % 6 for row in rows], "weekday": [1 + row % 7 for row in rows]})
    found = parse_contract(infer_contract(store, publish(store, {"t": table}))).tables["t"].columns
    assert [name for name, column in found.items() if column.unique] == []
    assert found["items"].max is None and found["items"].warn and found["items"].warn.max
    assert found["weekday"].max and found["weekday"].max.value == 7


def test_what_was_seen_stands_beside_the_rule(store: ArtifactStore) -> None:
    text = infer_contract(store, _snapshot(store))
    assert "      # 240 nulls in 1,200 rows; 11 to 94 characters\n" in text.replace("; every value differs", "")
    assert text == infer_contract(store, _snapshot(store)), "the same text for the same snapshot"


def test_columns_that_no_contract_can_state_are_named_and_left_out(store: ArtifactStore) -> None:
    table = pa.table({"a": [1, 2], "A": [3, 4], "day": pa.array([1, 2], pa.date32())})
    snapshot = publish(store, {"t": table})
    text = infer_contract(store, snapshot)
    assert list(parse_contract(text).tables["t"].columns) == ["a"]
    assert "# 'day' is not described: a contract has no type for date32." in text
    assert _validate(store, snapshot, text).verdict == "pass"


def test_only_a_snapshot_has_a_contract(store: ArtifactStore) -> None:
    other = store.publish("config", "x", {"a": "b"})
    with pytest.raises(ConfigurationError, match="expected a snapshot with tables"):
        infer_contract(store, other)


def test_the_command_prints_or_writes_it_and_spares_a_file_that_is_there(store: ArtifactStore, tmp_path: Path) -> None:
    snapshot = _snapshot(store)
    expected, written = infer_contract(store, snapshot), tmp_path / "contract.yaml"
    wanted = ["infer-contract", "snapshots/small", "--store", store.address]
    assert CliRunner().invoke(app, wanted).stdout == expected
    assert CliRunner().invoke(app, [*wanted, "--out", str(written)]).exit_code == 0
    assert written.read_text(encoding="utf-8") == expected
    written.write_text("mine")
    refused = CliRunner().invoke(app, [*wanted, "--out", str(written)])
    assert isinstance(refused.exception, ConfigurationError)
    assert written.read_text() == "mine"
    assert CliRunner().invoke(app, [*wanted, "--out", str(written), "--force"]).exit_code == 0
    assert written.read_text(encoding="utf-8") == expected


def test_a_wide_table_is_looked_at_in_pieces_as_a_narrow_one_is_at_once(store: ArtifactStore) -> None:
    wide = 205
    columns: dict[str, Any] = {
        f"code_{n}": [f"{chr(65 + n % 26)}-{row % 90:02d}" for row in range(ROWS)] for n in range(3)
    }
    columns |= {f"x_{n}": [float(row * n) for row in range(ROWS)] for n in range(3)}
    many = columns | {f"y_{n}": [n + row % 7 for row in range(ROWS)] for n in range(wide)}
    found = [parse_contract(infer_contract(store, publish(store, {"t": pa.table(each)}))) for each in (columns, many)]
    narrow, whole = (contract.tables["t"].columns for contract in found)
    assert len(whole) == wide + 6 > _WIDE and {column: whole[column] for column in narrow} == narrow
    assert narrow["code_1"].pattern and whole["y_204"].max
