"""Guards: what a delivery may not do silently, and the harmless case next to each."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from gatehouse.data.snapshot.stage import SnapshotResult
from gatehouse.errors import ConfigurationError, DeliveryError, SourceError
from tests.data.snapshot.conftest import HEADER, Events, rows

_NAIVE = HEADER + "0,2024-01-01 08:00:00,0.5\n1,2024-01-01 09:00:00,0.5\n"
COLUMNS = {"id": "int64", "at": "timestamp", "value": "double"}


def _records(events: Events) -> list[dict[str, Any]]:
    return [json.loads(events.store.objects.get_bytes(key)) for key in events.store.objects.list("sources/small")]


def _in_zone(events: Events, zone: str, **more: Any) -> SnapshotResult:
    events.keys["time_zone"] = zone
    return events.take(**more)


@pytest.mark.parametrize(
    ("written", "rewritten"),
    [
        (rows(0, 900), 0),
        (rows(0, 100) + rows(100, 101, 0.7) + rows(101, 600), 1),
        (rows(0, 598) + rows(598, 600, 0.7) + rows(600, 700), 2),
        (rows(7, 600), 7),
    ],
    ids=["an append", "a changed row", "changed rows before an append", "rows that vanished"],
)
def test_a_changed_past_is_refused_and_nothing_is_published(events: Events, written: str, rewritten: int) -> None:
    events.take()
    before = sorted(map(str, events.store.references()))
    events.write(HEADER + written)
    if not rewritten:
        assert events.take().warnings == ()
        return
    with pytest.raises(DeliveryError, match=rf"Table events: rewrite: {rewritten} rows .*backfill"):
        events.take()
    assert sorted(map(str, events.store.references())) == before


def test_an_append_compares_no_rows(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    events.take()
    events.write(HEADER + rows(0, 900))
    monkeypatch.setattr("duckdb.connect", lambda *_: pytest.fail("compared rows"))
    assert events.take().warnings == ()


def test_a_backfill_with_a_reason_passes_and_is_recorded(events: Events) -> None:
    events.take()
    events.write(HEADER + rows(0, 600).replace(",50.0\n", ",51.0\n"))
    for blank in (" ", "\n"):
        with pytest.raises(ConfigurationError, match="backfill"):
            events.take(backfill=blank)
    taken = events.take(backfill="the sensor was calibrated")
    assert "Let pass as a backfill: the sensor was calibrated." in taken.warnings[0]
    reasons = [record.get("backfill", {}).get("reason") for record in _records(events)]
    assert reasons == [None, "the sensor was calibrated"]
    assert events.take().warnings == taken.warnings
    assert len(_records(events)) == 2, "the same content again is no backfill"


@pytest.mark.parametrize("written", ["", "\n"])
def test_a_changed_declaration_is_reported_as_such(events: Events, written: str) -> None:
    events.write(_NAIVE)
    _in_zone(events, "UTC")
    events.write(_NAIVE + written)
    with pytest.raises(DeliveryError, match="rewrite: 2 rows") as raised:
        _in_zone(events, "Europe/Rome")
    assert ("declaration" in str(raised.value)) == (not written)


def test_a_first_look_is_compared_with_nothing(events: Events) -> None:
    events.write(_NAIVE)
    look = _in_zone(events, "UTC", look=True)
    assert _in_zone(events, "UTC", look=True).snapshot == look.snapshot
    assert [record["look"] for record in _records(events)] == [True], "a look that is repeated is one"
    run = _in_zone(events, "Europe/Rome")
    assert (run.warnings, run.snapshot == look.snapshot) == ((), False)
    assert _in_zone(events, "UTC", look=True).snapshot == look.snapshot
    with pytest.raises(DeliveryError, match="rewrite: 2 rows"):
        _in_zone(events, "UTC")  # The look has the same rows, but a run took others.


def test_an_older_state_of_the_source_is_a_rewrite_although_its_snapshot_is_known(events: Events) -> None:
    events.take()
    events.write(HEADER + rows(0, 700))
    events.take()
    events.write(HEADER + rows(0, 600))
    with pytest.raises(DeliveryError, match="rewrite: 100 rows"):
        events.take()
    assert events.take(backfill="withdrawn").rows == {"events": 600}


def test_a_source_that_stands_still_is_stale_by_the_clock(events: Events) -> None:
    events.table = {"guards": {"stale_after": "P36500D"}}
    assert events.take().warnings == ()
    events.table = {"guards": {"stale_after": "P2D", "stale": "warn"}}
    (warning,) = events.take().warnings
    assert "Table events: stale: the newest row is of 2024-01-01T09:59:00" in warning
    assert events.take().warnings == (warning,), "an unchanged source grows old as well"
    events.table = {"guards": {"stale_after": "P2D"}}
    with pytest.raises(DeliveryError, match="stale"):
        events.take()


def test_a_row_of_the_future_is_reported_by_the_clock(events: Events) -> None:
    events.write(f"{HEADER}1,{(datetime.now(UTC) + timedelta(hours=20)).isoformat()},1.5\n")
    assert events.take(backfill="other rows").delivery == events.take().warnings, "clocks and zones may differ"
    events.write(f"{HEADER}1,2203-05-01T00:00:00Z,1.5\n")
    (*_, warning) = events.take(backfill="other rows").warnings
    assert "Table events: future: the newest row is of 2203-05-01T00:00:00+00:00" in warning
    events.table = {"guards": {"future": "accept"}}
    assert "future" not in "".join(events.take(backfill="other rows").warnings)
    events.table = {"guards": {"future": "fail"}}
    with pytest.raises(DeliveryError, match="future"):
        events.take()


@pytest.mark.parametrize(
    ("table", "written", "warning"),
    [
        ({"availability_lag": "PT2H"}, rows(0, 590) + rows(590, 600, 0.7), ""),
        ({}, rows(0, 610) + rows(100, 103, 0.9), "late: 3 new rows are older than 2024-01-01T09:59:00+00:00"),
        ({"guards": {"late_allowance": "PT10H"}}, rows(0, 610) + rows(100, 103, 0.9), ""),
        (
            {"availability_lag": "P30D", "guards": {"late_allowance": "PT1H"}},
            rows(0, 500, 0.7) + rows(500, 610) + rows(100, 101, 0.9),
            "late: 1 new rows are older than 2024-01-01T08:59:00+00:00",
        ),
        ({"guards": {"late_allowance": "PT20H"}}, rows(0, 600) + rows(590, 600), "duplicate_rows: 10 new rows"),
        ({"guards": {"late_allowance": "PT20H"}}, rows(0, 600) + rows(100, 110), "duplicate_rows: 10 new rows"),
        ({"guards": {"rewrite": "accept"}}, rows(0, 599), ""),
        ({"guards": {"rewrite": "accept"}}, rows(0, 250), "row_count: expected 300 to 1,800 rows"),
        ({}, rows(0, 1700), ""),
        ({}, rows(0, 1900), "row_count: expected 300 to 1,800 rows"),
        ({"availability_lag": "PT9H", "guards": {"rewrite_allowance": "PT1H"}}, rows(0, 550) + rows(550, 600, 0.7), ""),
    ],
)
def test_late_repeated_and_missing_rows_are_a_warning(
    events: Events, table: dict[str, Any], written: str, warning: str
) -> None:
    events.table = table
    events.take()
    events.write(HEADER + written)
    warnings = events.take().warnings
    assert any(warning in text for text in warnings) if warning else warnings == ()


def test_the_same_file_twice_is_refused(events: Events) -> None:
    events.table = {"member": "*.csv"}
    (events.folder / "copy.csv").write_bytes(events.csv.read_bytes())
    with pytest.raises(DeliveryError, match=r"duplicate_part: .* 2 times \(copy\.csv, events\.csv\)"):
        events.take()


def test_columns_that_come_and_go_follow_their_policy(events: Events) -> None:
    events.write("id,at,extra\n1,2024-01-01T00:00:00Z,x\n")
    with pytest.raises(SourceError, match=r"missing: value; not declared: extra"):
        events.take()
    events.table = {"guards": {"new_column": "warn", "missing_column": "warn"}}
    taken = events.take()
    assert [text.split(":")[1] for text in taken.warnings] == [" new_column", " missing_column"]
    assert events.read(taken).to_pylist()[0]["value"] is None
    again = events.take()  # It is not read again, and its warnings still hold.
    assert again.unchanged and again.warnings == taken.warnings == again.delivery


def test_a_column_of_another_type_than_before_is_reported_whatever_the_ending(events: Events) -> None:
    table = pa.table({"id": [1, 2], "at": pa.array([0, 1], pa.timestamp("us", "UTC")), "value": [1.0, 2.0]})
    pq.write_table(table, events.folder / "a.parquet")
    events.table = {"member": "a.parquet"}
    events.take()
    retyped = table.set_column(0, "id", table["id"].cast(pa.int16()))
    pyarrow.feather.write_feather(retyped, events.folder / "a.feather")
    events.table = {"member": "a.feather"}
    with pytest.raises(DeliveryError, match=r"retyped_column: id \(was int64, is int16\)"):
        events.take()
    events.table |= {"guards": {"retyped_column": "warn"}}
    assert any("retyped_column: id" in text for text in events.take().warnings)


def test_a_guard_that_cannot_judge_warns(events: Events) -> None:
    events.write(HEADER + rows(0, 590))
    last = events.dataset(events.take()).files[-1]
    events.store.objects.local_path(last.blob).unlink()
    events.write(HEADER + rows(0, 700))
    assert any("could not be judged" in text for text in events.take().warnings)


def test_nan_is_a_missing_value_unless_a_column_keeps_it(events: Events) -> None:
    events.write(HEADER + rows(0, 600).replace(",50.0\n", ",nan\n"))
    taken = events.take()
    assert "nan: NaN is read as a missing value in value (1)" in taken.warnings[0]
    assert (events.read(taken)["value"].null_count, events.read(taken).num_rows) == (1, 600)
    events.table = {"guards": {"nan": "accept"}}
    assert (events.take().warnings, events.take().snapshot) == ((), taken.snapshot)
    events.table = {"keeps_nan": ["value"]}
    assert events.read(events.take(backfill="NaN is a value"))["value"].null_count == 0
    events.table = {"keeps_nan": ["id"]}
    with pytest.raises(ValueError, match="keeps_nan"):
        events.take()
