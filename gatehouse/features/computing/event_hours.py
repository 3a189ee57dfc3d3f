"""Counts the rows of raw tables by the hour of their event, file by file, so that nothing else must look at all rows.

From these counts follow the pieces of feature tables, the files that a piece reads, and the hours that differ between
two versions of a table. A file is counted once, whatever table has it.
"""

import json
from collections.abc import Iterable
from datetime import UTC, datetime, tzinfo

from gatehouse.features.computing.spans import BEGINNING, END, FileHours
from gatehouse.features.database import connect, rows_of
from gatehouse.pieces.piece import KIND, ROWS, batches, piece, run_pieces
from gatehouse.store.canonical import canonical_json
from gatehouse.store.database import quoted, time_literal
from gatehouse.store.identity import Spec, operational
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore

_FILE = "hours.json"


class TimedFile(Spec):
    """A file of a raw table, and its column with the event time."""

    sha256: str
    column: str
    dataset: str = operational()
    path: str = operational()


class HoursRequest(StageModel):
    """The files to count."""

    files: tuple[TimedFile, ...]


class HoursResult(StageModel):
    """The artifact with the counts."""

    hours: str


@piece
def event_hours(request: HoursRequest, store: ArtifactStore) -> HoursResult:
    """Count the rows of every file by hour."""
    counted = []
    with connect() as connection:
        for file in request.files:
            rows, event = rows_of([store.path(file.dataset, file.path)]), f"{quoted(file.column)}::TIMESTAMPTZ"
            # Times without a zone are faster: with a zone, DuckDB asks a calendar for every row.
            hour = _within_calendar(f"date_trunc('hour', make_timestamp(epoch_us({event})))", None)
            query = f"SELECT {hour} AS hour, count(*), sum(hash(__row)::HUGEINT) FROM {rows} AS __row GROUP BY ALL"
            hours = connection.execute(f"{query} ORDER BY hour").fetchall()
            newest = connection.execute(f"SELECT {_within_calendar(f'max({event})', UTC)} FROM {rows}").fetchall()[0][0]
            texts = [[hour and hour.isoformat(), count, total] for hour, count, total in hours]
            counted.append([texts, newest and newest.astimezone(UTC).isoformat()])
    datasets = {f"dataset{number}": file.dataset for number, file in enumerate(request.files)}
    return HoursResult(
        hours=str(store.publish(KIND, "event-hours", {_FILE: canonical_json(counted)}, derived_from=datasets))
    )


def hours_of(store: ArtifactStore, tables: Iterable[tuple[str, str]]) -> dict[str, list[FileHours]]:
    """The hours of every file of tables, by the reference of the table; each is given with the column of its time."""
    files, sizes = dict[tuple[str, str], TimedFile](), dict[tuple[str, str], int]()
    named, of_table = {}, dict[str, list[tuple[str, str]]]()
    for dataset, column in tables:
        store.require_readable(dataset)
        named[dataset] = [(entry, (entry.sha256, column)) for entry in store.manifest(dataset).files]
        of_table.setdefault(dataset, [])
        for entry, key in named[dataset]:
            if key not in files:
                files[key] = TimedFile(sha256=entry.sha256, column=column, dataset=dataset, path=entry.path)
                sizes[key] = entry.rows or 0
                of_table[dataset].append(key)
    # A piece has files of one table, unless all are one piece: so other readers of the table find its pieces counted.
    groups = [[*files]] if sum(sizes.values()) <= ROWS else of_table.values()
    divided = [batch for group in groups for batch in batches(group, [sizes[key] for key in group], ROWS)]
    requests = [HoursRequest(files=tuple(files[key] for key in batch)) for batch in divided]
    results = run_pieces(store, [(event_hours, request) for request in requests])
    paths = store.paths_of([result.hours for result in results], _FILE)
    counted = [entry for path in paths for entry in json.loads(path.read_bytes())]
    by_key = dict(zip(files, counted, strict=True))

    def hours(path: str, key: tuple[str, str]) -> FileHours:
        texts, newest = by_key[key]
        times = [datetime.fromisoformat(hour).replace(tzinfo=UTC) if hour else None for hour, _, _ in texts]
        rows = {time: count for time, (_, count, _) in zip(times, texts, strict=True)}
        hashes = {time: total for time, (_, _, total) in zip(times, texts, strict=True)}
        return FileHours(path, key[0], rows, hashes, datetime.fromisoformat(newest) if newest else None)

    return {dataset: [hours(entry.path, key) for entry, key in entries] for dataset, entries in named.items()}


def _within_calendar(time: str, zone: tzinfo | None) -> str:
    """SQL of a time, limited to the years that Python's datetime can hold. Null stays null."""
    first, last = (time_literal(moment.replace(tzinfo=zone)) for moment in (BEGINNING, END))
    return f"if({time} IS NULL, NULL, least(greatest({time}, {first}), {last}))"
