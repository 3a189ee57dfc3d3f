"""The log of predictions: every answered row, by hour, as Parquet in the store, written off the path of a request.

A request only adds its answer to a queue. Twice a second, a thread appends what waits to a spool on this machine, an
Arrow stream, of which everything up to the last batch can be read after a kill. Each minute another thread turns spools
into `traffic/<model>/<hour>/<digest of the spool>.parquet`. The name follows from the spool, so rows that are sent
again are not there twice. A spool belongs to its process as long as it holds a lock on it; later any process sends it.
"""

import contextlib
import fcntl
import itertools
import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, cast, get_args
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.features.exact import TIME
from gatehouse.monitoring.live_log import FOLDER, HOUR, KINDS, pseudonym
from gatehouse.server.traffic import Answer, Part, Waiting, decision_times, fraction
from gatehouse.store.canonical import sha256_of
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)

Features = Literal["all", "digest", "none"]
WAITING_ROWS = 50_000
"""Rows that wait for the spool at most; further ones are dropped and counted."""
SPOOL_ROWS, SPOOL_FILE_BYTES = 200_000, 64 << 20
SPOOL_BYTES = 1 << 30
"""Bytes of all spools of a model on this machine at most, while the store is away; the oldest go first."""
WRITE_SECONDS, SEND_SECONDS = 0.5, 60.0
OWN = pa.schema({name: TIME if kind.startswith("time") else pa.type_for_alias(kind) for name, kind in KINDS.items()})


def features_of(text: str) -> Features:
    """What a log has of the features. Raises ConfigurationError."""
    for choice in get_args(Features):
        if choice == text:
            return cast(Features, choice)
    raise ConfigurationError(f"--log: expected {', '.join(get_args(Features))}, found {text!r}.")


class PredictionLog:
    """Writes answers of one model to its store.

    Args:
        features: Whether features are logged, their digest, or nothing of them. Sensitive ones never are.
        share: The share of the keys whose rows are logged.
        folder: Where spools are; by default beside the store's files on this machine.
    """

    def __init__(
        self,
        store: ArtifactStore,
        name: str,
        features: Features = "all",
        share: float = 1.0,
        folder: Path | None = None,
    ) -> None:
        self._store, self._name, self._features, self._share = store, name, features, share
        self._folder = folder or store.scratch(f"{FOLDER}/{name}")
        self._folder.mkdir(parents=True, exist_ok=True)
        self._waiting: Waiting[Answer] = Waiting(WAITING_ROWS)
        self._lost = 0
        self._spool: _Spool | None = None
        self._ended, self._sealed = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._keep_writing, self._keep_sending)
        ]

    @property
    def dropped(self) -> int:
        """Rows that the log lacks because memory, disk or store had no place for them."""
        return self._waiting.dropped + self._lost

    def add(self, answer: Answer) -> None:
        """Log an answer later."""
        if not self._waiting.add(answer, sum(len(part.rows) for part in answer.parts), answer.bytes):
            logger.warning("the log is too slow: %d rows were dropped so far", self.dropped)

    def start(self) -> None:
        """Start the threads, which first send what dead processes left."""
        self._sealed.set()
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Write and send what waits. What cannot be sent stays in the spool, for the next process."""
        self._ended.set()
        for thread in self._threads:
            thread.join(30)

    def _keep_writing(self) -> None:
        ended = False
        while not ended:
            ended = self._ended.wait(WRITE_SECONDS)
            self.write()
        self._seal()
        self._sealed.set()

    def _keep_sending(self) -> None:
        while not self._ended.is_set():
            self._sealed.wait(SEND_SECONDS)
            self._sealed.clear()
            try:
                self.send()
            except Exception:  # Such as a spool that another process has just sent: the next look goes on.
                logger.exception("spools are not sent yet")
        self._threads[0].join(30)
        self.send()

    def write(self) -> None:
        """Append what waits to the spool of its hour."""
        if self._spool and self._spool.full():
            self._seal()
            self._sealed.set()
        answers = sorted(self._waiting.take(), key=lambda answer: answer.at)
        for hour, group in itertools.groupby(answers, key=lambda answer: answer.at.strftime(HOUR)):
            of_hour = list(group)
            try:
                table = self._table(of_hour)
                if not table.num_rows:
                    continue
                if self._spool is None or not self._spool.fits(hour, table):
                    self._seal()
                    self._spool = _Spool(self._folder, hour, table.schema)
                self._spool.append(table)
            except Exception:  # A full disk, or a fault here, may not end the log.
                self._lost += sum(answer.rows for answer in of_hour)
                logger.exception("the log lacks rows: %d so far", self.dropped)
                self._seal()

    def send(self) -> None:
        """Send every spool that no process writes; if the store does not answer, try again later."""
        for path in sorted(self._folder.glob("*.arrow")):
            with _owned(path) as owned:
                try:
                    if owned:
                        self._put(path)
                except (GatehouseError, OSError) as error:
                    logger.warning("%s is not sent yet: %s", path.name, error)
                    break
        else:
            return
        self._shrink()

    def _put(self, path: Path) -> None:
        table = read_spool(path)
        if table.num_rows:
            sink, hour = pa.BufferOutputStream(), path.name.partition("_")[0]
            pq.write_table(table, sink, compression="zstd")
            key = f"{FOLDER}/{self._name}/{hour}/{sha256_of(path)[:32]}.parquet"
            self._store.objects.put_bytes(key, bytes(sink.getvalue()))
        path.unlink()

    def _shrink(self) -> None:
        """Drop the oldest spools beyond `SPOOL_BYTES`."""
        paths = sorted(self._folder.glob("*.arrow"), key=lambda path: path.stat().st_mtime)
        excess = sum(path.stat().st_size for path in paths) - SPOOL_BYTES
        for path in paths:
            with _owned(path) as owned:
                if owned and excess > 0:
                    excess -= path.stat().st_size
                    self._lost += read_spool(path).num_rows
                    path.unlink()
                    logger.error("the store is away for too long: the log lacks %d rows so far", self.dropped)

    def _seal(self) -> None:
        if self._spool:
            with contextlib.suppress(OSError):  # The disk is full: whole batches stay, and are sent.
                self._spool.close()
            self._spool = None

    def _table(self, answers: Iterable[Answer]) -> pa.Table:
        """The rows of answers whose key is logged."""
        groups: dict[tuple[str, bool], list[tuple[Answer, Part, list[int]]]] = {}
        for answer in answers:
            kept = {unit for unit in set(answer.units) if fraction("log", self._name, unit) < self._share}
            for part in answer.parts:
                if places := [place for place, row in enumerate(part.rows) if answer.units[row] in kept]:
                    key = (part.model.model, part.predictions is not None)
                    groups.setdefault(key, []).append((answer, part, places))
        tables = [self._of_model(model, group) for (model, _), group in groups.items()]
        return pa.concat_tables(tables, promote_options="default") if tables else pa.table({})

    def _of_model(self, model: str, group: Sequence[tuple[Answer, Part, list[int]]]) -> pa.Table:
        """Rows that one model answered, all with predictions or all without."""
        served = group[0][1].model
        hidden = served.sensitive
        own: dict[str, list[Any]] = {name: [] for name in [*served.keys, *OWN.names]}
        for answer, part, places in group:
            rows = [part.rows[place] for place in places]
            times, count = decision_times(answer), len(rows)
            for name in served.keys:
                values = answer.identity[name].to_pylist() if name in answer.identity.column_names else []
                own[name] += [values[row] for row in rows] if values else [None] * count
            own["decision_time"] += [times[row] for row in rows]
            own["request_row"] += rows
            own["unit"] += [pseudonym(self._name, answer.units[row]) for row in rows]
            same = (answer.id, answer.at, part.arm, model, int(part.model.version), answer.records)
            names = ("request_id", "requested_at", "arm", "model", "model_version", "ledger", "latency_ms", "error")
            for name, value in zip(names, (*same, part.milliseconds, part.error or None), strict=True):
                own[name] += [value] * count
        columns = {
            name: pa.array([value if value is None else pseudonym(self._name, name, value) for value in own[name]])
            if name in hidden
            else pa.array(
                own[name], OWN.field(name).type if name in OWN.names else pa.type_for_alias(served.keys[name])
            )
            for name in own
        }
        if group[0][1].predictions is not None:
            columns |= _columns((part.predictions, places) for _, part, places in group)
            features = _columns((part.features, places) for _, part, places in group)
            features = {name: column for name, column in features.items() if name not in hidden}
            if self._features == "digest":
                values = zip(*(features[name].to_pylist() for name in sorted(features)), strict=True)
                columns["features_digest"] = pa.array([pseudonym(self._name, *row) for row in values], pa.string())
            elif self._features == "all":
                columns |= {name: column for name, column in features.items() if name not in columns}
        return pa.table(columns)


def _columns(parts: Iterable[tuple[pa.Table | None, list[int]]]) -> dict[str, pa.ChunkedArray]:
    """The columns of these rows of tables, one after another."""
    tables = [table.take(rows) if len(rows) < table.num_rows else table for table, rows in parts if table is not None]
    together = pa.concat_tables(tables).combine_chunks()
    return dict(zip(together.column_names, together.columns, strict=True))


class _Spool:
    """A file of this process with rows of one hour, to which whole batches are appended."""

    def __init__(self, folder: Path, hour: str, schema: pa.Schema) -> None:
        new = folder / f"{hour}_{uuid4().hex}.new"
        self._hour, self._schema, self._rows, self._began = hour, schema, 0, time.monotonic()
        self._file = open(new, "xb", buffering=0)  # noqa: SIM115  It stays open, and its lock with it.
        fcntl.flock(self._file, fcntl.LOCK_EX)
        os.replace(new, new.with_suffix(".arrow"))
        self._writer = pa.ipc.new_stream(self._file, schema)

    def full(self) -> bool:
        """Whether it is time to send it."""
        grown = self._rows >= SPOOL_ROWS or self._file.tell() >= SPOOL_FILE_BYTES
        return grown or time.monotonic() - self._began >= SEND_SECONDS

    def fits(self, hour: str, table: pa.Table) -> bool:
        """Whether rows belong into this file, which may have further columns."""
        return hour == self._hour and all(
            (place := self._schema.get_field_index(field.name)) >= 0 and self._schema.field(place).type == field.type
            for field in table.schema
        )

    def append(self, table: pa.Table) -> None:
        """Write rows as one batch."""
        whole = pa.concat_tables([self._schema.empty_table(), table], promote_options="default")
        self._writer.write_table(whole.combine_chunks())
        self._rows += table.num_rows

    def close(self) -> None:
        """End the file, and give up its lock."""
        with self._file:
            self._writer.close()


def read_spool(path: Path) -> pa.Table:
    """The rows of a spool up to its last whole batch; a killed writer may have left half of another one."""
    batches: list[pa.RecordBatch] = []
    # How Arrow says that a batch is cut off, or that none follows.
    with contextlib.suppress(pa.ArrowInvalid, OSError, StopIteration), pa.OSFile(str(path)) as file:
        reader = pa.ipc.open_stream(file)
        while True:
            batches.append(reader.read_next_batch())
    return pa.Table.from_batches(batches) if batches else pa.table({})


@contextlib.contextmanager
def _owned(path: Path) -> Iterator[bool]:
    """Whether no other process, and no thread of this one, writes a spool; if so, none takes it before the end."""
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(open(path, "rb"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            owned = path.exists()
        except OSError:
            owned = False
        yield owned
