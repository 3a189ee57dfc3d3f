"""A contract inferred from a snapshot: the snapshot keeps it, a corrupted copy does not, and it reads well."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from gatehouse.cli.data import app
from gatehouse.data.validation.contract import CONTRACT_FILE, contract_text, parse_contract
from gatehouse.data.validation.inference import infer_contract
from gatehouse.data.validation.stage import ValidateRequest, ValidateResult, validate
from gatehouse.errors import ConfigurationError
from gatehouse.store.store import ArtifactStore
from tests.data.validation.conftest import anomalies_of, publish

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
    assert anomalies_of(shared, _validate(shared, snapshot, contract)) == []


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


def _snapshot(store: ArtifactStore, orders: pa.Table | None = None) -> str:
    return publish(store, {"orders": orders or _orders()})


def _columns(store: ArtifactStore, **columns: Any) -> Any:
    """The columns of the contract that is inferred from a table."""
    return parse_contract(infer_contract(store, publish(store, {"t": pa.table(columns)}))).tables["t"].columns


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
    assert anomalies_of(store, first) == anomalies_of(store, second) == []


@pytest.mark.parametrize(
    ("corrupted", "rule"),
    [
        (_put(_orders(), "amount", 1e6), "warn.max"),
        (_put(_orders(), "amount", -5.0), "min"),
        (_put(_orders(), "amount", float("nan")), "min"),
        (_put(_orders(), "month", 13), "max"),
        (_put(_orders(), "state", "lost"), "warn.allowed"),
        (_put(_orders(), "state", None), "nullable"),
        (_put(_orders(), "order_id", "AB-00001"), "unique"),
        (_put(_orders(), "placed_at", START + timedelta(days=9000)), "max"),
        (_put(_orders(), "note", "x" * 5000), "warn.max_length"),
        (_orders().set_column(5, "note", pa.nulls(ROWS, pa.string())), "completeness"),
        (_orders().drop_columns(["month"]), "column"),
        (_orders().set_column(6, "month", pa.array(["1"] * ROWS)), "type"),
        (_orders(300), "min_rows"),
    ],
)
def test_a_corrupted_copy_breaks_it(store: ArtifactStore, corrupted: pa.Table, rule: str) -> None:
    contract = infer_contract(store, _snapshot(store))
    result = _validate(store, _snapshot(store, corrupted), contract)
    broken = {anomaly["rule"] for anomaly in anomalies_of(store, result)}
    assert (rule in broken, result.verdict) == (True, "pass" if rule.startswith("warn.") else "fail")


def test_a_personal_column_is_marked_and_none_of_its_values_written(store: ArtifactStore) -> None:
    people = pa.table({"Email": ["one@example.org", "two@example.org"] * 300, "phoneNumber": [5550100, 5550199] * 300})
    text = infer_contract(store, publish(store, {"people": people}))
    columns = parse_contract(text).tables["people"].columns
    assert all(column.sensitive and column.allowed is None and column.min is None for column in columns.values())
    assert "example" not in text
    assert "5,550" not in text
    assert "5550" not in text


def test_what_the_next_delivery_may_exceed_only_warns(store: ArtifactStore) -> None:
    rows = range(ROWS)
    columns = _columns(
        store,
        at=pa.array([START + timedelta(minutes=row) for row in rows], TIME),
        size=[row + 0.5 for row in rows],
        amount=[1.5 + row % 97 for row in rows],
        items=[1 + row % 6 for row in rows],
        weekday=[1 + row % 7 for row in rows],
        kind=["c" if row == 7 else "ab"[row % 2] for row in rows],
    )
    assert [name for name, column in columns.items() if column.unique] == []
    amount, items, weekday, kind = (columns[name] for name in ("amount", "items", "weekday", "kind"))
    assert amount.min and amount.warn and amount.warn.max
    assert (amount.min.value, amount.warn.max.value, amount.max) == (0, 108, None)
    assert items.max is None and items.warn and items.warn.max
    assert weekday.max and weekday.max.value == 7, "what counts from 1 ends where it ends"
    assert kind.allowed is None and kind.warn and kind.warn.allowed


def test_what_was_seen_stands_beside_the_rule(store: ArtifactStore) -> None:
    text = infer_contract(store, _snapshot(store))
    assert "      # 240 nulls in 1,200 rows; at most 94 characters" in text
    assert text == infer_contract(store, _snapshot(store)), "the same text for the same snapshot"


def test_columns_that_no_contract_can_state_are_named_and_left_out(store: ArtifactStore) -> None:
    table = pa.table({"a": [1, 2], "A": [3, 4], "day": pa.array([1, 2], pa.date32())})
    snapshot = publish(store, {"t": table})
    text = infer_contract(store, snapshot)
    assert list(parse_contract(text).tables["t"].columns) == ["a"]
    assert "# 'day' is not described: a contract has no type for date32." in text
    assert _validate(store, snapshot, text).verdict == "pass"


def test_the_command_prints_or_writes_it_and_spares_a_file_that_is_there(store: ArtifactStore, tmp_path: Path) -> None:
    snapshot = _snapshot(store)
    expected, written = infer_contract(store, snapshot), tmp_path / "contract.yaml"
    command = ["infer-contract", "snapshots/small", "--store", store.address]
    assert CliRunner().invoke(app, command).stdout == expected
    assert CliRunner().invoke(app, [*command, "--out", str(written)]).exit_code == 0
    assert written.read_text(encoding="utf-8") == expected
    written.write_text("mine")
    for words in ([*command, "--out", str(written)], ["infer-contract", "config/none", "--store", store.address]):
        assert isinstance(CliRunner().invoke(app, words).exception, ConfigurationError)
    assert written.read_text() == "mine"
    assert CliRunner().invoke(app, [*command, "--out", str(written), "--force"]).exit_code == 0
    assert written.read_text(encoding="utf-8") == expected
