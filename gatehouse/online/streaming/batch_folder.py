"""The files of a pusher: a complete folder for every micro-batch, and a link to the current batch.

    current -> 42
    42/state.json                     positions in the streams, and the time up to which everything is known
    42/rows/<table>/*.parquet         the newest row of every key that arrived
    42/tables/<view>/*.parquet        the feature tables
    misfits.jsonl                     messages that were rejected, of all batches

The rows and positions of a batch are stored before anything is computed. After a kill, the pusher continues with the
same batch, so it writes the same again. At the end the link is moved. Unchanged files are hard-linked from one batch to
the next.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from gatehouse.errors import StoreError
from gatehouse.features.database import connect, quoted, text_literal
from gatehouse.online.streaming.rows import Misfit
from gatehouse.store.atomic_file import sync
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

CURRENT = "current"
_STATE, _ROWS, _TABLES, _MISFITS = "state.json", "rows", "tables", "misfits.jsonl"
_COUNTS = ("rows", "repeated", "late", "misfits")
_PARTS = 16  # Files of rows before they are merged into one.


def streams_folder(store: ArtifactStore, project: str, feature_tables: Reference) -> Path:
    """Where pushers that start from these feature tables store their batches."""
    return store.local_folder / "streams" / project / feature_tables.digest[:16]


@dataclass(frozen=True)
class BatchState:
    """The state of a pusher after a micro-batch.

    Attributes:
        number: The number of the micro-batch; 0 for the tables from which the pusher started.
        quiet_until: The last moment before the first message of the micro-batch arrived.
        as_of: Time up to which everything is known. All rows known until then are settled.
        started_from: The feature tables from which the pusher started.
        views: Names of the views that are pushed.
        positions: The position of the last message included, by table and partition.
        newest: The newest event time by table.
        changed: The hours of event time in which the micro-batch changes rows, by table; None for any hour.
        counts: Numbers of messages by table: `rows`, of which some are `repeated` (nothing new, or replaced within the
            batch) and some `late`; and `misfits`, which were rejected.
    """

    number: int
    quiet_until: datetime
    as_of: datetime
    started_from: str
    views: tuple[str, ...]
    positions: dict[str, dict[str, tuple[int, ...]]] = field(default_factory=dict)
    newest: dict[str, datetime] = field(default_factory=dict)
    changed: dict[str, list[datetime] | None] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)

    def count(self, table: str, **more: int) -> None:
        """Count messages of a table."""
        counts = self.counts.setdefault(table, dict.fromkeys(_COUNTS, 0))
        for name, number in more.items():
            counts[name] += number

    def dump(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self), default=str, sort_keys=True, indent=1)

    @classmethod
    def load(cls, text: str) -> "BatchState":
        """From JSON."""
        body: dict[str, Any] = json.loads(text)
        body |= {name: datetime.fromisoformat(body[name]) for name in ("quiet_until", "as_of")}
        body["newest"] = {table: datetime.fromisoformat(text) for table, text in body["newest"].items()}
        body["changed"] = {
            table: None if hours is None else [datetime.fromisoformat(hour) for hour in hours]
            for table, hours in body["changed"].items()
        }
        body["views"] = tuple(body["views"])
        body["positions"] = {
            table: {name: tuple(place) for name, place in found.items()} for table, found in body["positions"].items()
        }
        return cls(**body)


class BatchFolder:
    """The folder of one pusher; only one pusher at a time may have it open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Hold the folder's lock: no other pusher can work here. The lock ends with the process, however it ends.

        Raises:
            StoreError: if another pusher works here.
        """
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError(
                    f"Another process pushes from {self.folder}. Stop it first, or wait until it ends."
                ) from None
            yield

    def state(self) -> BatchState | None:
        """The current state; None before the first."""
        path = self.folder / CURRENT / _STATE
        return BatchState.load(path.read_text()) if path.is_file() else None

    def stored(self, number: int) -> BatchState | None:
        """The state after a batch whose rows are stored, whether it is current or not; None if there is none."""
        path = self.folder / str(number) / _STATE
        return BatchState.load(path.read_text()) if path.is_file() else None

    def rows(self, number: int, table: str) -> list[Path]:
        """Files with the rows of a table that arrived up to a batch, the newest row of every key."""
        return sorted((self.folder / str(number) / _ROWS / table).glob("*.parquet"))

    def table(self, number: int, view: str) -> dict[str, Path]:
        """The files of a view's table after a batch, by name."""
        return {path.name: path for path in sorted((self.folder / str(number) / _TABLES / view).glob("*.parquet"))}

    def scratch(self, number: int) -> Path:
        """An empty folder for new files of a batch, on the same disk."""
        folder = self.folder / f"{number}.scratch"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    def store_rows(
        self,
        state: BatchState,
        rows: Mapping[str, pa.Table],
        key: Mapping[str, Sequence[str]],
        misfits: Sequence[Misfit],
    ) -> None:
        """Store the rows of a batch, with those of the batches before it; all of them or none.

        Args:
            state: The state after the batch.
            rows: The rows of the batch by table, one per key.
            key: The key columns of every table.
            misfits: Rejected messages. They are written before the rows are stored. If the batch is read again, they
                are written again; their positions in the stream show that they are the same messages.
        """
        self._note(misfits)
        new = self.folder / f"{state.number}.new"
        shutil.rmtree(new, ignore_errors=True)
        (new / _ROWS).mkdir(parents=True)
        before = self.folder / str(state.number - 1) / _ROWS
        for table in {*rows, *(path.name for path in before.glob("*"))}:
            (new / _ROWS / table).mkdir()
            _add_rows(before / table, new / _ROWS / table, state.number, rows.get(table), key[table])
        (new / _STATE).write_text(state.dump())
        _to_disk(new)
        new.rename(self.folder / str(state.number))
        sync(self.folder)

    def _note(self, misfits: Sequence[Misfit]) -> None:
        if not misfits:
            return
        with (self.folder / _MISFITS).open("a+b") as file:
            # A line that a kill cut short stays separate.
            if file.seek(0, os.SEEK_END) and not _ends_a_line(file):
                file.write(b"\n")
            file.write(b"".join(json.dumps(asdict(each)).encode() + b"\n" for each in misfits))
            file.flush()
            os.fsync(file.fileno())

    def keep_tables(self, number: int, tables: Mapping[str, Mapping[str, Path]]) -> None:
        """Store the files of a batch's feature tables, by view and file name; unchanged files are hard-linked."""
        new = self.folder / str(number) / f"{_TABLES}.new"
        shutil.rmtree(new, ignore_errors=True)
        for view, files in tables.items():
            (new / view).mkdir(parents=True)
            for name, path in files.items():
                _link(path, new / view / name)
        _to_disk(new)
        new.rename(self.folder / str(number) / _TABLES)
        sync(self.folder / str(number))

    def has_tables(self, number: int) -> bool:
        """Whether the feature tables of a batch are stored."""
        return (self.folder / str(number) / _TABLES).is_dir()

    def commit(self, number: int) -> None:
        """Make a batch the current one. The previous batch is kept until the next commit, as others may read it."""
        link = self.folder / f"{CURRENT}.new"
        link.unlink(missing_ok=True)
        link.symlink_to(str(number))
        os.replace(link, self.folder / CURRENT)
        sync(self.folder)
        for old in self.folder.iterdir():
            if old.name.split(".")[0].isdigit() and (int(old.name.split(".")[0]) < number - 1 or old.suffix):
                shutil.rmtree(old, ignore_errors=True)


def _ends_a_line(file: BinaryIO) -> bool:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def _add_rows(before: Path, after: Path, number: int, rows: pa.Table | None, key: Sequence[str]) -> None:
    parts = sorted(before.glob("*.parquet")) if before.is_dir() else []
    for path in parts:
        _link(path, after / path.name)
    if rows is not None and rows.num_rows:
        pq.write_table(rows, after / f"{number:012d}.parquet")
    parts = sorted(after.glob("*.parquet"))
    if len(parts) >= _PARTS:
        with connect() as connection:
            newest = connection.sql(newest_query(parts, key)).to_arrow_table()
        for path in parts:
            path.unlink()
        pq.write_table(newest, after / f"{number:012d}.parquet")


def newest_query(parts: Sequence[Path], key: Sequence[str]) -> str:
    """SQL of the last row of every key. File names have the order of batches, and each file holds a key once."""
    files = ", ".join(map(text_literal, parts))
    keys = ", ".join(map(quoted, key))
    return (
        f"SELECT * EXCLUDE (filename) FROM read_parquet([{files}], filename = true, union_by_name = true) "
        f"QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY filename DESC) = 1"
    )


def _link(path: Path, target: Path) -> None:
    """Hard-link a file; copy it where the file systems differ."""
    path = path.resolve()
    try:
        os.link(path, target)
    except OSError:
        shutil.copyfile(path, target)


def _to_disk(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        sync(path)
    sync(folder)
