"""Guards: what a delivery may not do silently, each told from the harmless case beside it."""

import gzip
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gatehouse.data.snapshot.stage import SnapshotRequest, SnapshotResult, snapshot
from gatehouse.data.sources.catalog import parse_source
from gatehouse.errors import ConfigurationError, DeliveryError, SourceError
from tests.data.snapshot.conftest import HEADER, Events, rows

_NAIVE = HEADER + "0,2024-01-01 08:00:00,0.5\n1,2024-01-01 09:00:00,0.5\n"


def _records(events: Events) -> list[dict[str, Any]]:
    return [json.loads(events.store.objects.get_bytes(key)) for key in events.store.objects.list("sources/small")]


def _in_zone(events: Events, zone: str, **more: Any) -> SnapshotResult:
    events.keys["time_zone"] = zone
    return events.take(**more)


def test_an_append_is_no_reason_for_a_warning(events: Events) -> None:
    events.take()
    events.write(HEADER + rows(0, 900))
    assert events.take().warnings == ()


def test_a_changed_past_is_refused_and_nothing_is_published(events: Events) -> None:
    events.take()
    before = sorted(map(str, events.store.references()))
    events.write(HEADER + rows(0, 600).replace(",50.0\n", ",51.0\n"))
    with pytest.raises(DeliveryError, match=r"Table events: rewrite: 1 rows .* expected none.*`backfill`"):
        events.take()
    assert sorted(map(str, events.store.references())) == before


def test_a_changed_past_behind_an_append_is_refused(events: Events) -> None:
    events.take()
    events.write(HEADER + rows(0, 598) + rows(598, 600, 0.7) + rows(600, 700))
    with pytest.raises(DeliveryError, match="rewrite: 2 rows"):
        events.take()


def test_rows_that_vanished_are_a_rewrite(events: Events) -> None:
    events.take()
    events.write(HEADER + rows(7, 600))
    with pytest.raises(DeliveryError, match="rewrite: 7 rows"):
        events.take()


def test_a_backfill_with_a_reason_passes_and_is_recorded(events: Events) -> None:
    events.take()
    events.write(HEADER + rows(0, 600).replace(",50.0\n", ",51.0\n"))
    taken = events.take(backfill="the sensor was calibrated")
    assert "Let pass as a backfill: the sensor was calibrated." in taken.warnings[0]
    assert [record.get("backfill", {}).get("reason") for record in _records(events)] == [
        None,
        "the sensor was calibrated",
    ]
    assert events.take().warnings == taken.warnings
    assert len(_records(events)) == 2, "the same content again is no backfill"


@pytest.mark.parametrize(
    ("written", "said"), [("", "; the source is as it was, so its declaration .* changed"), ("\n", "")]
)
def test_a_changed_declaration_is_told_as_such(events: Events, written: str, said: str) -> None:
    events.write(_NAIVE)
    _in_zone(events, "UTC")
    events.write(_NAIVE + written)
    with pytest.raises(DeliveryError, match=rf"rewrite: 2 rows .* expected none{said}\. First id=0"):
        _in_zone(events, "Europe/Rome")


def test_nothing_is_held_against_a_first_look_which_is_held_against_nothing(events: Events) -> None:
    events.write(_NAIVE)
    look = _in_zone(events, "UTC", look=True)
    assert _in_zone(events, "UTC", look=True).snapshot == look.snapshot
    assert [record["look"] for record in _records(events)] == [True], "a look that is repeated is one"
    run = _in_zone(events, "Europe/Rome")
    assert (run.warnings, run.snapshot == look.snapshot) == ((), False)
    assert _in_zone(events, "UTC", look=True).snapshot == look.snapshot
    with pytest.raises(DeliveryError, match="rewrite: 2 rows"):
        _in_zone(events, "UTC")  # The look has the same rows, but a run took others.


def test_a_run_that_takes_what_was_looked_at_is_what_later_ones_are_held_against(events: Events) -> None:
    look = events.take(look=True)
    taken = events.take()
    assert (taken.snapshot, taken.unchanged, taken.warnings) == (look.snapshot, True, ())
    events.write(HEADER + rows(7, 600))
    with pytest.raises(DeliveryError, match="rewrite: 7 rows"):
        events.take()


@pytest.mark.parametrize("blank", [" ", "\n"])
def test_a_backfill_needs_a_reason(events: Events, blank: str) -> None:
    with pytest.raises(ConfigurationError, match="--backfill: expected why"):
        events.take(backfill=blank)


def test_a_source_that_stands_still_is_told_by_the_clock(events: Events) -> None:
    events.table = {"guards": {"stale_after": "P36500D"}}
    assert events.take().warnings == ()
    events.table = {"guards": {"stale_after": "P2D", "stale": "warn"}}
    (warning,) = events.take().warnings
    assert "Table events: stale: the newest row, of 2024-01-01T09:59:00" in warning and "expected 48 at most" in warning
    assert events.take().warnings == (warning,), "an unchanged source grows old as well"
    events.table = {"guards": {"stale_after": "P2D"}}
    with pytest.raises(DeliveryError, match="Look why the source stands still"):
        events.take()


def test_a_row_of_the_future_is_told_by_the_clock(events: Events) -> None:
    now = datetime.now(UTC)
    events.write(f"{HEADER}1,{(now + timedelta(hours=20)).isoformat()},1.5\n")
    assert events.take(backfill="other rows").delivery == events.take().warnings, "clocks and zones may differ"
    events.write(f"{HEADER}1,2203-05-01T00:00:00Z,1.5\n")
    (*_, warning) = events.take(backfill="other rows").warnings
    assert "Table events: future: the newest row is of 2203-05-01T00:00:00+00:00, expected none after today" in warning
    events.table = {"guards": {"future": "accept"}}
    assert "future" not in "".join(events.take(backfill="other rows").warnings)
    events.table = {"guards": {"future": "fail"}}
    with pytest.raises(DeliveryError, match=r"future: .* set guards.future: accept if they are meant"):
        events.take()


def test_an_older_state_of_the_source_is_a_rewrite_although_its_snapshot_is_known(events: Events) -> None:
    events.take()
    events.write(HEADER + rows(0, 700))
    events.take()
    events.write(HEADER + rows(0, 600))
    with pytest.raises(DeliveryError, match="rewrite: 100 rows"):
        events.take()
    assert events.take(backfill="withdrawn").rows == {"events": 600}


def test_rows_within_the_availability_lag_may_still_change(events: Events) -> None:
    events.table = {"availability_lag": "PT2H"}
    events.take()
    events.write(HEADER + rows(0, 590) + rows(590, 600, 0.7))
    assert not any("rewrite" in warning for warning in events.take().warnings)


def test_a_static_table_may_be_replaced(events: Events) -> None:
    events.more_tables = {"places": {"member": "places.csv", "columns": {"name": "string"}}}
    (events.folder / "places.csv").write_text("name\nhere\nthere\n")
    events.take()
    (events.folder / "places.csv").write_text("name\nthere\nelsewhere\n")
    assert events.take().warnings == ()


def test_late_rows_are_told(events: Events) -> None:
    events.take()
    events.write(HEADER + rows(0, 610) + rows(100, 103, 0.9))
    assert any("late: 3 new rows are older than 2024-01-01T09:59:00+00:00" in text for text in events.take().warnings)


def test_completed_rows_are_not_late_and_the_allowance_is_told(events: Events) -> None:
    events.table = {"availability_lag": "P30D", "guards": {"late_allowance": "PT1H"}}
    events.take()
    events.write(HEADER + rows(0, 500, 0.7) + rows(500, 610) + rows(100, 101, 0.9))
    assert events.take().warnings == (
        "Table events: late: 1 new rows are older than 2024-01-01T08:59:00+00:00, the newest event time of the earlier "
        "snapshot, 2024-01-01T09:59:00+00:00, minus guards.late_allowance, 1:00:00. What was computed from that "
        "snapshot did not know them. Where rows come late by nature, raise guards.late_allowance.",
    )


@pytest.mark.parametrize(
    ("written", "table", "said"),
    [
        (rows(0, 100) + rows(100, 101, 0.51) + rows(101, 600), {}, "value=50.0: now value=51.0. If"),
        (rows(0, 100) + rows(101, 600), {}, "value=50.0: now not there. If"),
        (rows(0, 100) + rows(101, 600), {"sensitive": ["value"]}, "value=***: now not there. If"),
    ],
)
def test_a_rewrite_names_its_first_row(events: Events, written: str, table: dict[str, Any], said: str) -> None:
    events.table = table
    events.take()
    events.write(HEADER + written)
    with pytest.raises(DeliveryError) as refused:
        events.take()
    assert f"First id=100, at=2024-01-01 01:40:00+00, {said}" in str(refused.value)
    (warning,) = events.take(backfill="meant").warnings
    assert "First" not in warning, "no erasure reaches a record"


def test_late_rows_within_the_allowance_are_not(events: Events) -> None:
    events.table = {"guards": {"late_allowance": "PT10H"}}
    events.take()
    events.write(HEADER + rows(0, 610) + rows(100, 103, 0.9))
    assert events.take().warnings == ()


@pytest.mark.parametrize("start", [590, 100])
def test_the_same_rows_again_are_told(events: Events, start: int) -> None:
    events.table = {"guards": {"late_allowance": "PT20H"}}
    events.take()
    events.write(HEADER + rows(0, 600) + rows(start, start + 10))
    assert any("duplicate_rows: 10 new rows" in text for text in events.take().warnings)


def test_the_same_file_twice_is_refused(events: Events) -> None:
    events.table = {"member": "*.csv"}
    (events.folder / "copy.csv").write_bytes(events.csv.read_bytes())
    with pytest.raises(DeliveryError, match=r"duplicate_part: .* 2 times \(copy\.csv, events\.csv\)"):
        events.take()


@pytest.mark.parametrize(("count", "warned"), [(599, False), (250, True), (1700, False), (1900, True)])
def test_a_jump_in_the_number_of_rows_is_told(events: Events, count: int, warned: bool) -> None:
    events.table = {"guards": {"rewrite": "accept"}}
    events.take()
    events.write(HEADER + rows(0, count))
    assert any("row_count: expected 300 to 1,800 rows" in text for text in events.take().warnings) == warned


def test_a_policy_of_fail_ends_the_run(events: Events) -> None:
    events.table = {"guards": {"row_count": "fail", "rewrite": "accept"}}
    events.take()
    events.write(HEADER + rows(0, 100))
    with pytest.raises(DeliveryError, match="row_count"):
        events.take()


def test_columns_that_come_and_go_follow_their_policy(events: Events) -> None:
    events.write("id,at,extra\n1,2024-01-01T00:00:00Z,x\n")
    with pytest.raises(SourceError, match=r"missing: value; not declared: extra"):
        events.take()
    events.table = {"guards": {"new_column": "warn", "missing_column": "warn"}}
    taken = events.take()
    assert any("new_column: extra" in text for text in taken.warnings)
    assert any("missing_column: value" in text for text in taken.warnings)
    assert events.read(taken).to_pylist()[0]["value"] is None
    again = events.take()  # It is not read again, and what was said of it still holds.
    assert again.unchanged and again.warnings == taken.warnings == again.delivery


def test_a_column_of_another_type_than_before_is_told(events: Events) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    events.table = {"member": "*.parquet", "guards": {"retyped_column": "warn"}}
    at = pa.array([0, 60_000_000], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"id": [1, 2], "at": at, "value": [1.0, 2.0]}), events.folder / "a.parquet")
    assert events.take().warnings == ()
    later = pa.array([120_000_000, 180_000_000], pa.timestamp("us", "UTC"))
    pq.write_table(
        pa.table({"id": pa.array([3, 4], pa.int16()), "at": later, "value": [1.0, 2.0]}), events.folder / "b.parquet"
    )
    assert any("retyped_column: id (was int64, is int16)" in text for text in events.take().warnings)


def test_a_column_of_another_type_is_told_in_a_file_of_another_ending_too(events: Events) -> None:
    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet as pq

    rows = pa.table({"id": [1, 2], "at": pa.array([0, 1], pa.timestamp("us", "UTC")), "value": [1.0, 2.0]})
    pq.write_table(rows, events.folder / "a.parquet")
    events.table = {"member": "a.parquet"}
    events.take()
    retyped = rows.set_column(0, "id", rows["id"].cast(pa.int16()))
    pyarrow.feather.write_feather(retyped, events.folder / "a.feather")
    events.table = {"member": "a.feather"}
    with pytest.raises(DeliveryError, match=r"retyped_column: id \(was int64, is int16\)"):
        events.take()


@pytest.mark.parametrize(("first", "second"), [("rows.ndjson", "rows.jsonl"), ("rows.jsonl", "rows.jsonl.gz")])
def test_json_lines_are_json_lines_whatever_they_are_called(events: Events, first: str, second: str) -> None:
    for name, value in ((first, "1"), (second, "true")):
        line = f'{{"id": 1, "at": "2024-01-01T00:00:00Z", "value": 2.0, "more": {value}}}\n'.encode()
        (events.folder / name).write_bytes(gzip.compress(line) if name.endswith(".gz") else line)
    events.table = {"member": first, "guards": {"new_column": "accept"}}
    events.take()
    events.table |= {"member": second}
    with pytest.raises(DeliveryError, match=r"retyped_column: more \(was number, is bool\)"):
        events.take()


def test_a_source_of_another_kind_is_told_as_such_and_not_as_types_that_changed(events: Events) -> None:
    columns = {"id": "int64", "at": "timestamp", "value": "double"}
    events.take()
    query = f"SELECT * FROM read_csv('{events.csv}')"
    table = {"query": query, "columns": columns, "event_time": "at", "order_by": ["id"]}
    body = {"name": "small", "kind": "sql", "url": "duckdb:///:memory:", "tables": {"events": table}}
    (warning,) = snapshot(SnapshotRequest(source=parse_source(body)), events.store).warnings
    assert "Table events: read from sql (duckdb), before from files (.csv)" in warning
    assert "id (was text, is BIGINT)" in warning and "retyped_column" not in warning


def test_another_window_has_a_history_of_its_own(events: Events) -> None:
    events.take()
    assert events.take(window="2024-01-01T02:00/2024-01-01T04:00").warnings == ()
    assert len(_records(events)) == 2


def test_a_guard_that_cannot_judge_says_so(events: Events) -> None:
    last = events.dataset(events.take()).files[-1]
    events.store.objects.local_path(last.blob).unlink()
    events.write(HEADER + rows(0, 700))
    assert any("could not be judged" in text for text in events.take().warnings)


def test_rows_within_the_rewrite_allowance_may_change_and_older_ones_may_not(events: Events) -> None:
    events.table = {"availability_lag": "PT9H", "guards": {"rewrite_allowance": "PT1H"}}
    events.take()
    events.write(HEADER + rows(0, 550) + rows(550, 600, 0.7))
    assert not any("rewrite" in warning for warning in events.take().warnings)
    events.write(HEADER + rows(0, 500) + rows(500, 550, 0.7) + rows(550, 600, 0.7))
    with pytest.raises(DeliveryError, match="rewrite: 40 rows"):
        events.take()


def test_an_append_compares_no_rows(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    events.take()
    events.write(HEADER + rows(0, 900))
    monkeypatch.setattr("duckdb.connect", lambda *_: pytest.fail("compared rows"))
    assert events.take().warnings == ()


def test_one_of_two_equal_parts_that_vanishes_is_a_rewrite(events: Events) -> None:
    events.block_bytes = 2**20
    events.table = {"member": "*.csv", "guards": {"duplicate_part": "accept", "row_count": "accept"}}
    (events.folder / "copy.csv").write_bytes(events.csv.read_bytes())
    events.take()
    (events.folder / "copy.csv").unlink()
    with pytest.raises(DeliveryError, match="rewrite: 600 rows"):
        events.take()


def test_one_more_of_equal_parts_is_told_as_rows_that_are_there_already(events: Events) -> None:
    events.block_bytes = 2**20
    events.table = {"member": "*.csv", "guards": {"duplicate_part": "accept", "late": "accept"}}
    events.take()
    (events.folder / "copy.csv").write_bytes(events.csv.read_bytes())
    assert any("duplicate_rows: 600 new rows" in text for text in events.take().warnings)


COLUMNS = {"id": "int64", "at": "timestamp", "value": "double"}


def test_another_event_time_than_before_cannot_be_judged_and_that_is_said(events: Events) -> None:
    seen = [f"{line},{line.split(',')[1].replace('2024-01-01', '2024-01-02')}\n" for line in rows(0, 600).splitlines()]
    events.take()
    events.write("id,at,value,seen\n" + "".join(seen))
    events.table = {"columns": COLUMNS | {"seen": "timestamp"}, "event_time": "seen"}
    expected = "could not be judged: the earlier snapshot has another event time than {}"
    assert any(expected.format("seen") in text for text in events.take().warnings)
    events.table["event_time"] = "at"
    events.write("id,at,value,seen\n" + "".join(seen[:500]))
    assert any(expected.format("at") in text for text in events.take().warnings), "both columns were there before"


def test_a_column_of_another_type_is_left_out_of_the_comparison_and_the_others_are_held(events: Events) -> None:
    times = "".join(f"{number},2024-01-01T00:{number:02d}:00Z,{{}}\n" for number in range(50))
    events.table = {"columns": COLUMNS | {"value": "int64"}}
    events.write(HEADER + times.replace("{}", "1"))
    events.take()
    events.table = {"columns": COLUMNS | {"value": "timestamp"}}
    events.write(HEADER + times.replace("{}", "2024-01-01T00:00:00Z"))
    assert any("could not be judged: by value: declared as another type" in text for text in events.take().warnings)
    events.table = {"columns": COLUMNS | {"value": "string"}}
    events.write(HEADER + times.replace("{}", "x").replace("\n7,", "\n70,"))
    with pytest.raises(DeliveryError, match="rewrite: 1 rows"):
        events.take()
