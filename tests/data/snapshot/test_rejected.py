"""Rows that do not fit: an error by default, or rejected with line, reason and text, up to a limit, and redacted."""

import pyarrow.parquet as pq
import pytest

from gatehouse.data.snapshot import parts
from gatehouse.data.snapshot.report import groups_of, page, rejected_page
from gatehouse.data.snapshot.stage import SnapshotResult
from gatehouse.errors import DeclarationError, SourceError
from tests.data.snapshot.conftest import HEADER, Events, rows

REJECT = {"on_invalid": "reject"}


def _rejected(events: Events, taken: SnapshotResult) -> list[dict[str, str]]:
    paths = events.store.paths(taken.rejected["events"])
    return [row for path in paths for row in pq.read_table(path).to_pylist()]


def test_rejected_rows_are_kept_with_line_reason_and_text(events: Events) -> None:
    events.write(HEADER + rows(0, 300).replace(",100.0\n", ",many\n") + "7,8\n" + '"9",soon,"1,5"\n' + rows(300, 600))
    with pytest.raises(SourceError, match=r"events\.csv, line 202, column value: .* found 'many'"):
        events.take()
    events.table = REJECT
    taken = events.take()
    assert taken.rows == {"events": 599} and taken.rejected_rows == {"events": 3}
    rejected = _rejected(events, taken)
    assert [(row["place"], row["column"], row["observed"], row["raw"]) for row in rejected] == [
        ("events.csv, line 202", "value", "'many'", "200,2024-01-01T03:20:00Z,many"),
        ("events.csv, line 302", "", "2", "7,8"),
        ("events.csv, line 303", "at", "'soon'", '"9",soon,"1,5"'),
    ]
    assert rejected[1]["reason"] == "expected 3 columns" and "with its zone" in rejected[2]["reason"]
    manifest = events.store.manifest(taken.rejected["events"])
    assert manifest.derived_from == {"dataset": str(events.dataset(taken).reference)}
    assert events.read(taken)["id"].to_pylist() == [number for number in range(600) if number != 200]
    assert events.take().rejected_rows == {"events": 3}, "also if nothing changed"
    events.csv.write_text(events.csv.read_text() + rows(600, 620))
    assert _rejected(events, events.take()) == rejected, "those of known parts are kept"


def test_too_many_rejected_rows_are_an_error(events: Events) -> None:
    events.table = REJECT | {"reject_limit": 0.01}
    events.write(HEADER + rows(0, 600).replace("0.0\n", "many\n"))
    with pytest.raises(DeclarationError, match=r"Table events: 30 of 600 rows .* events.csv, line 2, "):
        events.take()
    events.table = REJECT | {"reject_limit": 1.0}
    events.write(HEADER + rows(0, 60).replace(":00Z", ""))
    with pytest.raises(DeclarationError, match=r"Table events: 60 of 60 rows .* events\.csv, line 2"):
        events.take()


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
def test_no_value_of_a_misfit_is_shown_in_a_table_with_a_sensitive_column(events: Events, odd: str) -> None:
    columns = {"id": "int64", "at": "timestamp", "name": "string", "value": "double", "note": "string"}
    events.table = REJECT | {"reject_limit": 0.9, "columns": columns, "sensitive": ["name"]}
    row = "1,2024-01-01T00:00:00Z,anna,9,\n"
    events.write(f"id,at,name,value,note\n{row}".encode() + odd.encode("latin-1") + b"\n")
    taken = events.take()
    [rejected] = _rejected(events, taken)
    assert rejected["raw"] == "***" and "secret" not in str(rejected)
    html = rejected_page(events.store, taken.rejected["events"])
    assert "secret" not in html and "***" not in html
    assert events.dataset(taken).details["sensitive"] == ["name"], "who shows values must know"
    events.table = {"columns": columns, "sensitive": ["name"]}
    with pytest.raises(SourceError, match="line 3") as caught:
        events.take()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ("1,2024-01-01T00:00:00Z,secret", r"missing: id, at, value; not declared: column 1 \(.*, column 3 \(name not"),
        ("secret,value,1", r"missing: id, at; not declared: column 1 \(name not shown\), column 3 \("),
        ("secret,value,secret,at", r"one name \(repeated: column 1 \(name not shown\), column 3 \("),
        ("value,value,secret", r"one name \(repeated: value\)"),
    ],
)
def test_the_first_row_of_a_file_without_a_header_is_not_shown(events: Events, first: str, message: str) -> None:
    events.table = {"sensitive": ["value"]}
    events.write(f"{first}\n")
    with pytest.raises(SourceError, match=message) as caught:
        events.take()
    assert "secret" not in str(caught.value)


def test_an_undeclared_name_is_in_no_warning_and_no_record_beside_a_sensitive_column(events: Events) -> None:
    events.table = {"sensitive": ["value"], "guards": {"new_column": "warn"}}
    events.write("id,secret,at,value\n1,x,2024-01-01T00:00:00Z,9\n")
    [warning] = events.take().warnings
    assert "new_column: column 2 (name not shown): not declared" in warning
    [record] = events.store.objects.list("sources/small")
    assert b"secret" not in events.store.objects.get_bytes(record)


def test_rejected_rows_are_grouped_by_reason_with_the_first_examples(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "ROWS_PER_GROUP", 20)
    events.table = REJECT | {"reject_limit": 1.0}
    cells = [line.split(",")[:2] for line in rows(0, 4000).splitlines()]
    lines = (",".join([*row, "many"] if at not in (10, 1800, 3600) else row) + "\n" for at, row in enumerate(cells))
    events.write(HEADER + "".join(lines) + "9000,2024-01-01T00:00:00Z,1\n")
    taken = events.take()
    rejected, reference = _rejected(events, taken), taken.rejected["events"]
    groups = groups_of(events.store, reference, 2)
    assert [(group.column, group.rows) for group in groups] == [("value", 3997), ("", 3)]
    for group in groups:
        first = [row for row in rejected if (row["column"], row["reason"]) == (group.column, group.reason)][:2]
        examples = [{name: row[name] for name in ("place", "observed", "raw")} for row in first]
        assert [vars(example) for example in group.examples] == examples
    assert [group.examples for group in groups_of(events.store, reference, examples=0)] == [(), ()]
    html = rejected_page(events.store, reference)
    assert "4,000 of 4,001 rows" in html and "events.csv, line" in html


def test_the_page_of_a_snapshot_counts_the_rows_of_each_table_and_the_rejected_ones(events: Events) -> None:
    events.table = REJECT
    events.write(HEADER + rows(0, 300).replace(",100.0\n", ",many\n"))
    head, body = page(events.store, events.take().snapshot).split("</header>")
    assert "events: 1 of 300 rows did not fit" in head and "gatehouse data rejected" in head
    assert all(f"<td>{column}</td>" in body for column in ("id", "at", "value"))
    events.write(HEADER + rows(0, 300))
    assert "of 300 rows" not in page(events.store, events.take().snapshot)
