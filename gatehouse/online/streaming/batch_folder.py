"""The files of a pusher: a complete folder for every micro-batch, and a link to the current batch.

    current -> 42
    42/state.json                     positions in the streams, and the time up to which everything is known
    42/rows/<table>/*.parquet         the rows that arrived since the start
    42/tables/<view>/*.parquet        the feature tables
    misfits/42.jsonl                  the messages of a batch that were rejected

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
from datetime import datetime
from pathlib import Path

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from gatehouse.errors import StoreError
from gatehouse.features.database import connect, write_parquet
from gatehouse.store.atomic_file import sync
from gatehouse.store.database import quoted, text_literal
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

CURRENT = "current"
COUNTS = ("rows", "repeated", "late", "misfits")
_PARTS = 16  # Files of rows before they are merged into one.


class Misfit(BaseModel):
    """A message that was rejected."""

    table: str
    partition: str
    position: tuple[int, ...]
    reason: str


class BatchState(BaseModel):
    """The state of a pusher after a micro-batch.

    Attributes:
        number: The number of the micro-batch; 0 for the tables from which the pusher started.
        quiet_until: The last moment before the first message of the micro-batch arrived.
        as_of: Time up to which everything is known. All rows known until then are settled.
        positions: The position of the last message included, by table and partition.
        changed: The hours of event time in which the micro-batch changes rows, by table; None for any hour.
        counts: Numbers of messages by table: `rows`, `repeated` and `late` ones among these, and rejected `misfits`.
    """

    model_config = ConfigDict(frozen=True)

    number: int
    quiet_until: datetime
    as_of: datetime
    started_from: str
    views: tuple[str, ...]
    positions: dict[str, dict[str, tuple[int, ...]]] = {}
    newest: dict[str, datetime] = {}
    changed: dict[str, list[datetime] | None] = {}
    counts: dict[str, dict[str, int]] = {}


def streams_folder(store: ArtifactStore, project: str, feature_tables: Reference) -> Path:
    """Where pushers that start from these feature tables store their batches."""
    return store.local_folder / "streams" / project / feature_tables.digest[:16]


class BatchFolder:
    """The folder of one pusher; only one pusher at a time may have it open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Hold the folder's lock, which ends with the process. Raises StoreError if another pusher works here."""
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError(
                    f"Another process pushes from {self.folder}. Stop it first, or wait until it ends."
                ) from None
            yield

    def state(self, number: int | None = None) -> BatchState | None:
        """The state after a batch whose rows are stored, by default the current one; None if there is none."""
        path = self.folder / (CURRENT if number is None else str(number)) / "state.json"
        return BatchState.model_validate_json(path.read_text()) if path.is_file() else None

    def rows(self, number: int, table: str) -> list[Path]:
        """Files with the rows of a table that arrived up to a batch; see `newest_query`."""
        return sorted((self.folder / str(number) / "rows" / table).glob("*.parquet"))

    def table(self, number: int, view: str) -> dict[str, Path]:
        """The files of a view's table after a batch, by name."""
        return {path.name: path for path in sorted((self.folder / str(number) / "tables" / view).glob("*.parquet"))}

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
        keys: Mapping[str, Sequence[str]],
        misfits: Sequence[Misfit],
    ) -> None:
        """Store the rows of a batch beside those of the batches before it; all of them or none."""
        new = self.folder / f"{state.number}.new"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        for table, key in keys.items():
            folder, parts = new / "rows" / table, self.rows(state.number - 1, table)
            folder.mkdir(parents=True)
            part = folder / f"{state.number:012d}.parquet"
            if table in rows and rows[table].num_rows:
                write_parquet(rows[table], part)
                if len(parts) + 1 >= _PARTS:
                    with connect() as connection:
                        merged = connection.sql(newest_query([*parts, part], key)).to_arrow_table()
                    write_parquet(merged, part)
                    parts = []
            for path in parts:
                _link(path, folder / path.name)
        if misfits:
            (self.folder / "misfits").mkdir(exist_ok=True)
            lines = "".join(json.dumps(misfit.model_dump()) + "\n" for misfit in misfits)
            (self.folder / "misfits" / f"{state.number}.jsonl").write_text(lines)
        (new / "state.json").write_text(state.model_dump_json(indent=1))
        self._rename(new, self.folder / str(state.number))

    def keep_tables(self, number: int, tables: Mapping[str, Mapping[str, Path]]) -> None:
        """Store the files of a batch's feature tables, by view and file name."""
        new = self.folder / str(number) / "tables.new"
        shutil.rmtree(new, ignore_errors=True)
        for view, files in tables.items():
            (new / view).mkdir(parents=True)
            for name, path in files.items():
                _link(path, new / view / name)
        self._rename(new, self.folder / str(number) / "tables")

    def has_tables(self, number: int) -> bool:
        """Whether the feature tables of a batch are stored."""
        return (self.folder / str(number) / "tables").is_dir()

    def commit(self, number: int) -> None:
        """Make a batch the current one. The previous batch is kept until the next commit, as others may read it."""
        link = self.folder / f"{CURRENT}.new"
        link.unlink(missing_ok=True)
        link.symlink_to(str(number))
        os.replace(link, self.folder / CURRENT)
        sync(self.folder)
        for old in self.folder.iterdir():
            batch, _, suffix = old.name.partition(".")
            if batch.isdigit() and (int(batch) < number - 1 or suffix):
                shutil.rmtree(old, ignore_errors=True)

    def _rename(self, new: Path, folder: Path) -> None:
        for path in sorted([new, *new.rglob("*")], reverse=True):
            sync(path)
        new.rename(folder)
        sync(folder.parent)


def newest_query(parts: Sequence[Path], key: Sequence[str]) -> str:
    """SQL of the last row of every key. File names have the order of batches, and each file holds a key once."""
    files = ", ".join(map(text_literal, parts))
    keys = ", ".join(map(quoted, key))
    return (
        f"SELECT * EXCLUDE (filename) FROM read_parquet([{files}], filename = true, union_by_name = true) "
        f"QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY parse_filename(filename) DESC) = 1"
    )


def _link(path: Path, target: Path) -> None:
    """Hard-link a file; copy it where the file systems differ."""
    try:
        os.link(path.resolve(), target)
    except OSError:
        shutil.copyfile(path, target)
