"""Rows that do not fit: an error by default, or set aside with line, reason and text, up to a limit, and redacted."""

import pyarrow.parquet as pq
import pytest

from gatehouse.data.snapshot import parts
from gatehouse.data.snapshot.rejected import groups_of
from gatehouse.data.snapshot.report import page, rejected_page
from gatehouse.data.snapshot.stage import SnapshotResult
from gatehouse.errors import DeclarationError, SourceError
from tests.data.snapshot.conftest import HEADER, Events, rows

REJECT = {"on_invalid": "reject"}


def _rejected(events: Events, taken: SnapshotResult) -> list[dict[str, object]]:
    paths = events.store.paths(taken.rejected["events"])
    return [row for path in paths for row in pq.read_table(path).to_pylist()]


def test_a_bad_row_in_a_later_block_is_named_by_its_line(events: Events) -> None:
    events.write(HEADER + rows(0, 600).replace(",250.0\n", ",many\n"))
    with pytest.raises(SourceError, match=r"events\.csv, line 502, column value: expected double .* found 'many'"):
        events.take()


def test_rejected_rows_are_kept_with_line_reason_and_text(events: Events) -> None:
    events.table = REJECT
    events.write(HEADER + rows(0, 300).replace(",100.0\n", ",many\n") + "7,8\n" + '"9",soon,"1,5"\n' + rows(300, 600))
    taken = events.take()
    assert taken.rows == {"events": 599}
    found = _rejected(events, taken)
    time = "expected a time with its zone, e.g. 2013-01-01T10:00:00Z (or source.time_zone) or a null"
    assert [tuple(row.values()) for row in found] == [
        ("events.csv, line 202", "value", "expected double or a null", "'many'", "200,2024-01-01T03:20:00Z,many"),
        ("events.csv, line 302", "", "expected 3 columns", "2", "7,8"),
        ("events.csv, line 303", "at", time, "'soon'", '"9",soon,"1,5"'),
    ]
    aside = events.store.manifest(taken.rejected["events"])
    assert aside.derived_from == {"dataset": str(events.dataset(taken).reference)}
    assert events.read(taken)["id"].to_pylist() == [number for number in range(600) if number != 200]


def test_rows_beside_a_rejected_one_stay_as_they_are(events: Events) -> None:
    events.table = REJECT | {"reject_limit": 1.0, "columns": {"id": "int64", "at": "timestamp", "value": "string"}}
    odd = '1,2024-01-01T00:00:00Z,"a\rb\n""c"", \\xe9 é"\n'
    events.write((HEADER + odd + "x,2024-01-01T00:00:00Z,y\n").encode() + b"2,2024-01-01T00:00:00Z,\xe9\n")
    taken = events.take()
    assert events.read(taken)["value"].to_pylist() == ['a\rb\n"c", \\xe9 é']
    assert [row["raw"] for row in _rejected(events, taken)] == [
        "x,2024-01-01T00:00:00Z,y",
        "2,2024-01-01T00:00:00Z,\\xe9",
    ]


def test_the_rejected_rows_of_a_known_part_are_kept(events: Events) -> None:
    events.table = REJECT
    events.write(HEADER + rows(0, 600).replace(",100.0\n", ",many\n"))
    before = _rejected(events, events.take())
    events.write(HEADER + rows(0, 620).replace(",100.0\n", ",many\n"))
    assert _rejected(events, events.take()) == before


def test_too_many_rejected_rows_are_an_error(events: Events) -> None:
    events.table = REJECT | {"reject_limit": 0.01}
    events.write(HEADER + rows(0, 600).replace("0.0\n", "many\n"))
    with pytest.raises(
        DeclarationError, match=r"Table events: 30 of 600 rows .* at most a share of 0\.01\. events.csv, line 2, "
    ):
        events.take()


def test_values_that_arrow_reads_are_not_rejected(events: Events) -> None:
    events.table = REJECT | {"reject_limit": 1.0}
    odd = ["1e3", "-0.5", "inf", "-inf", "nan", "007", "NA", "", "1.", ".5", "+1", "0x10", " 1", "1 ", "1,0"]
    lines = "".join(f'1,2024-01-01T00:00:00Z,"{value}"\n' for value in odd)
    events.write(HEADER + lines)
    kept = events.take().rows["events"]
    fits = 0
    for value in odd:
        events.table = {"guards": {"rewrite": "accept", "duplicate_part": "accept"}}
        events.write(HEADER + f'1,2024-01-01T00:00:00Z,"{value}"\n')
        try:
            events.take()
            fits += 1
        except SourceError:
            pass
    assert kept == fits


def test_sensitive_values_are_in_no_message_and_no_rejected_row(events: Events) -> None:
    text = HEADER + rows(0, 600).replace(",100.0\n", ",secret\n")
    events.write(text.replace("\n299,", "\n299,299,"))
    events.table = {"sensitive": ["value"]}
    with pytest.raises(SourceError, match=r"line 202, column value: .* found a value that is not shown"):
        events.take()
    events.table |= REJECT
    taken = events.take()
    assert [row["raw"] for row in _rejected(events, taken)] == ["***", "***"]
    assert "secret" not in str(_rejected(events, taken))
    (dataset,) = events.store.manifest(taken.snapshot).derived_from.values()
    assert events.store.manifest(dataset).details["sensitive"] == ["value"], "who shows values must know"


@pytest.mark.parametrize(
    "odd",
    [
        "2,secret,2024-01-01T00:00:00Z,",
        "2,2024-01-01T00:00:00Z,secret,,,",
        "secret,2024-01-01T00:00:00Z,9,",
        "2,2024-01-01T00:00:00Z,,secret,",
        'x,2024-01-01T00:00:00Z,secret,"to secret"',
        "x,2024-01-01T00:00:00Z,\xe9,secret",
    ],
)
def test_a_sensitive_value_in_another_column_is_not_shown(events: Events, odd: str) -> None:
    columns = {"id": "int64", "at": "timestamp", "name": "string", "value": "double", "note": "string"}
    events.table = REJECT | {"reject_limit": 0.9, "columns": columns, "sensitive": ["name"]}
    row = "1,2024-01-01T00:00:00Z,anna,9,\n"
    events.write(f"id,at,name,value,note\n{row}".encode() + odd.encode("latin-1") + b"\n")
    taken = events.take()
    [rejected] = _rejected(events, taken)
    assert rejected["raw"] == "***" and "secret" not in str(rejected)
    html = rejected_page(events.store, taken.rejected["events"])
    assert "secret" not in html and "No value of these rows is shown" in html
    assert "the row as the source gave it" not in html and "***" not in html
    events.table = {"columns": columns, "sensitive": ["name"]}
    with pytest.raises(SourceError, match="line 3") as caught:
        events.take()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ("1,2024-01-01T00:00:00Z,secret", r"missing: id, at, value; not declared: column 1 \(.*, column 3 \(name not"),
        ("secret,value,1", r"missing: id, at; not declared: column 1 \(name not shown\), column 3 \("),
        ("secret,value,secret,at", r"one name \(repeated: column 1 \(name not shown\), column 3 \("),
        ("value,value,secret", r"one name \(repeated: value\)"),
    ],
)
def test_the_first_row_of_a_file_without_a_header_is_not_shown(events: Events, first: str, said: str) -> None:
    events.table = {"sensitive": ["value"]}
    events.write(f"{first}\n")
    with pytest.raises(SourceError, match=said) as caught:
        events.take()
    assert "secret" not in str(caught.value)


def test_an_undeclared_name_is_in_no_warning_and_no_record_beside_a_sensitive_column(events: Events) -> None:
    events.table = {"sensitive": ["value"], "guards": {"new_column": "warn"}}
    events.write("id,secret,at,value\n1,x,2024-01-01T00:00:00Z,9\n")
    [warning] = events.take().warnings
    assert "new_column: column 2 (name not shown): not declared" in warning
    [record] = events.store.objects.list("sources/small")
    assert b"secret" not in events.store.objects.get_bytes(record)


def test_a_row_that_is_set_aside_changes_no_dataset(events: Events) -> None:
    events.table = REJECT
    events.block_bytes = 2**20
    events.write(HEADER + rows(0, 600))
    before = events.dataset(events.take())
    events.write(HEADER + rows(0, 600) + "600,soon,1\n")
    taken = events.take()
    assert taken.rejected
    assert events.dataset(taken).reference == before.reference


def test_the_result_counts_the_rejected_rows(events: Events) -> None:
    events.table = REJECT
    events.write(HEADER + rows(0, 600).replace(",100.0\n", ",many\n"))
    assert (taken := events.take()).rejected_rows == {"events": 1} and taken.rows == {"events": 599}
    assert events.take().rejected_rows == {"events": 1}, "also where nothing changed"


def test_that_all_rows_were_rejected_is_said(events: Events) -> None:
    events.table = REJECT | {"reject_limit": 1.0}
    events.write(HEADER + rows(0, 60).replace(":00Z", ""))
    with pytest.raises(
        DeclarationError, match=r"Table events: all 60 rows were rejected, so nothing is left\. events\.csv, line 2"
    ):
        events.take()


def test_rejected_rows_are_grouped_by_reason_with_examples(events: Events) -> None:
    events.table = REJECT | {"reject_limit": 1.0, "sensitive": ["id"]}
    text = rows(0, 600).replace("0.0\n", "x\n").replace("\n599,", "\nfive,")
    events.write(HEADER + text)
    [reference] = events.take().rejected.values()
    value, key = "expected double or a null", "expected int64 or a null"
    found = groups_of(events.store, reference, examples=2)
    assert [(group.column, group.reason, group.rows) for group in found] == [("value", value, 30), ("id", key, 1)]
    first, second = found[0].examples
    assert (first.place, first.found, first.raw) == (
        "events.csv, line 2",
        "a value that is not shown",
        "***",
    )
    assert "five" not in str(found)
    assert second.place != first.place
    html = rejected_page(events.store, reference)
    assert "31 of 600 rows (5.17%) did not fit" in html and "five" not in html
    assert value in html and "events.csv, line" in html
    assert [group.examples for group in groups_of(events.store, reference, examples=0)] == [(), ()]


def test_groups_and_examples_are_those_of_all_row_groups(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "ROWS_PER_GROUP", 20)
    events.table = REJECT | {"reject_limit": 1.0}
    cells = [line.split(",")[:2] for line in rows(0, 4000).splitlines()]
    short = (10, 1800, 3600)
    lines = (",".join([*row, "many"] if at not in short else row) + "\n" for at, row in enumerate(cells))
    events.write(HEADER + "".join(lines) + "9000,2024-01-01T00:00:00Z,1\n")
    taken = events.take()
    every = _rejected(events, taken)
    found = groups_of(events.store, taken.rejected["events"], 2)
    assert [(group.column, group.rows) for group in found] == [("value", 3997), ("", 3)]
    for group in found:
        mine = [row for row in every if (row["column"], row["reason"]) == (group.column, group.reason)]
        assert [vars(one) for one in group.examples] == [
            {name: row[name] for name in ("place", "found", "raw")} for row in mine[:2]
        ]


def test_the_page_of_a_snapshot_counts_the_rows_of_each_table_and_warns_of_those_set_aside(events: Events) -> None:
    events.table = REJECT
    events.write(HEADER + rows(0, 300).replace(",100.0\n", ",many\n"))
    head, body = page(events.store, events.take().snapshot).split("</header>")
    assert "events: 1 of 300 rows did not fit and were set aside" in head and "gatehouse data rejected" in head
    assert '<td>events</td><td class="n">299</td><td class="n warn">1</td><td class="n">3</td>' in body
    assert all(f"<td>{column}</td>" in body for column in ("id", "at", "value"))
    events.write(HEADER + rows(0, 300))
    assert "set aside" not in page(events.store, events.take().snapshot)
