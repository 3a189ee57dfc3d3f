"""Which event times changed rows touch."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gatehouse.features.computing.event_hours import hours_of
from gatehouse.features.computing.spans import (
    BEGINNING,
    END,
    FileHours,
    Span,
    changed_hours,
    newest_event,
    rows_needed,
    spans_to_compute,
)
from gatehouse.features.database import connect, write_parquet
from gatehouse.features.definitions.declarations import Source
from gatehouse.store.store import ArtifactStore

DAY = timedelta(days=1)
SALES = Source(table="sales", event_time="day", lead=2 * DAY)


class Tables:
    """A store to which a table is published, a file for each query."""

    def __init__(self, folder: Path) -> None:
        self.store, self.path = ArtifactStore.open(folder / "store"), folder / "part.parquet"

    def publish(self, *days: str, more: str = "1 AS amount") -> str:
        files = {}
        with connect() as connection:
            for number, day in enumerate(days):
                write_parquet(connection.sql(f"SELECT TIMESTAMPTZ '{day}' AS day, {more}").to_arrow_table(), self.path)
                files[f"{number}.parquet"] = self.path.read_bytes()
        return str(self.store.publish("datasets", "sales", files))

    def changed(self, before: Sequence[str], after: Sequence[str]) -> list[datetime] | None:
        return changed_hours(self.hours(*before), self.hours(*after))

    def hours(self, *days: str) -> list[FileHours]:
        dataset = self.publish(*days)
        return hours_of(self.store, [(dataset, SALES.event_time)])[dataset]


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)


def test_a_file_that_a_table_holds_twice_counts_twice(tables: Tables) -> None:
    first, second = "2024-01-01 05:30", "2024-01-02 06:30"
    assert tables.changed([first, first], [first, second]) == [
        datetime(2024, 1, 1, 5, tzinfo=UTC),
        datetime(2024, 1, 2, 6, tzinfo=UTC),
    ]
    assert tables.changed([first, second], [second, first]) == []


@pytest.mark.parametrize(
    ("day", "span"),
    [
        ("0044-03-15 (BC)", Span(BEGINNING, BEGINNING + 3 * DAY + timedelta(hours=1))),
        ("0001-01-01", Span(BEGINNING, BEGINNING + 3 * DAY + timedelta(hours=1))),
        ("9999-12-31 23:59", Span(END - 2 * DAY, END)),
        ("12000-01-01", Span(END - 2 * DAY, END)),
    ],
)
def test_spans_end_where_time_ends(tables: Tables, day: str, span: Span) -> None:
    hours = tables.changed(["2024-01-01"], ["2024-01-01", day])
    spans = spans_to_compute({"sales": hours}, {"sales": SALES}, 3 * DAY)
    assert spans == [span]
    assert rows_needed(span, SALES, 3 * DAY).count("TIMESTAMPTZ") == 1, "the end of time bounds nothing"
    newest = newest_event(tables.hours(day))
    assert newest is not None and BEGINNING <= newest <= END
