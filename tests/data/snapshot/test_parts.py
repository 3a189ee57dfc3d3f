"""Parts: what is known is not read again, an append keeps the blobs, and the result depends on the rows alone."""

import gzip
import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gatehouse.data.snapshot import parts
from gatehouse.data.snapshot.ingestion import shards
from gatehouse.data.sources import file_reader
from gatehouse.runtime import in_turn
from gatehouse.store.store import ArtifactStore
from tests.data.snapshot.conftest import HEADER, Events, rows

Reads = Callable[[], int]


def test_an_append_keeps_all_blobs_but_the_last(events: Events) -> None:
    before = events.dataset(events.take())
    events.write(HEADER + rows(0, 606))
    after = events.dataset(events.take())
    assert (len(before.files), len(after.files)) == (20, 21)
    assert [entry.sha256 for entry in after.files][: len(before.files) - 1] == [e.sha256 for e in before.files][:-1]
    assert after.rows == 606


def test_the_same_rows_are_one_snapshot_in_every_format(
    events: Events, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_reader, "WINDOW", 1024)
    text, snapshots = events.csv.read_text(), {events.take().snapshot}
    table = events.read(events.take())
    lines = "".join(json.dumps(row | {"at": row["at"].isoformat()}) + "\n" for row in table.to_pylist())
    quoted = "\r\n".join(",".join(f'"{cell}"' for cell in line.split(",")) for line in text.splitlines())
    pq.write_table(table, events.folder / "e.parquet", row_group_size=70)
    for name, content in (("q.csv", quoted), ("e.jsonl", lines), ("e.csv.gz", text)):
        packed = gzip.compress(content.encode()) if name.endswith("gz") else content.encode()
        (events.folder / name).write_bytes(packed)
    for name in ("q.csv", "e.jsonl", "e.csv.gz", "e.parquet"):
        events.table = {"member": name, "guards": {"retyped_column": "accept"}}
        taken = events.take(ArtifactStore.open(tmp_path / name))
        snapshots.add(taken.snapshot)
    assert len(snapshots) == 1


def test_reusing_parts_gives_the_same_snapshot_as_reading_all(events: Events, tmp_path: Path) -> None:
    events.take()
    events.write(HEADER + rows(0, 606))
    assert events.take() == events.take(ArtifactStore.open(tmp_path / "other"))


def test_an_unchanged_source_is_not_read(events: Events, reads: Reads) -> None:
    first = events.take()
    reads()
    again = events.take()
    assert again == first.model_copy(update={"unchanged": True})
    assert reads() == 0
    assert len(list(events.store.objects.list("sources/small"))) == 1


def test_another_declaration_reads_everything_again(events: Events, reads: Reads) -> None:
    events.take()
    first = reads()
    columns = {"id": "int64", "at": "timestamp", "value": "string"}
    events.table = {"columns": columns, "guards": {"rewrite": "accept", "late": "accept", "duplicate_rows": "accept"}}
    events.take()
    assert reads() == first


def test_threads_and_the_order_in_which_blocks_arrive_do_not_matter(
    events: Events, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = []
    store_part = parts._store
    for threads in (1, 4):
        monkeypatch.setattr(in_turn, "processors", lambda threads=threads: threads)
        delays = iter([0.02, 0.0, 0.01] * 100)
        lock = threading.Event()

        def slowly(*arguments, delays=delays, lock=lock):  # type: ignore[no-untyped-def]
            lock.wait(next(delays))
            return store_part(*arguments)

        monkeypatch.setattr(parts, "_store", slowly)
        results.append(events.take(ArtifactStore.open(tmp_path / str(threads))))
    assert results[0] == results[1]


def test_two_at_once_agree(events: Events) -> None:
    with ThreadPoolExecutor(2) as pool:
        results = [run.result() for run in [pool.submit(events.take) for _ in range(2)]]
    assert results[0].snapshot == results[1].snapshot == events.take().snapshot


@pytest.mark.parametrize(("count", "shard_count"), [(0, 0), (1, 0), (10, 3), (1_000_003, 7), (5_000_000, 0), (5, 5)])
def test_shards_cover_all_rows_and_differ_by_less_than_a_twentieth(count: int, shard_count: int) -> None:
    made = shards(count, shard_count)
    assert [shard.start for shard in made] == [sum(shard.rows for shard in made[:index]) for index in range(len(made))]
    assert sum(shard.rows for shard in made) == count
    sizes = [shard.rows for shard in made]
    assert max(sizes) <= 1.05 * min(sizes) or len(made) == 1


def _flip(events: Events, key: str) -> None:
    path = events.store.objects.local_path(key)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"x")


def test_a_known_part_whose_blob_is_cut_short_is_read_again(events: Events) -> None:
    before = events.dataset(events.take())
    entry = before.files[3]
    path = events.store.objects.local_path(entry.blob)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1])
    events.write(HEADER + rows(0, 606))
    taken = events.take()
    assert entry in events.dataset(taken).files and events.store.verify(taken.snapshot)
    assert list(events.store.objects.list("quarantine"))


def test_a_table_that_lost_a_blob_is_read_again_though_its_snapshot_is_known(events: Events, reads: Reads) -> None:
    taken = events.take()
    dataset = events.dataset(taken)
    os.unlink(events.store.objects.local_path(dataset.files[3].blob))
    reads()
    assert events.take() == taken
    assert reads() == 1 and events.store.exists(dataset.reference)


def test_a_forced_run_reads_every_part_again_and_replaces_altered_bytes(events: Events, reads: Reads) -> None:
    taken = events.take()
    first = reads()
    assert events.take(force="a") == taken and reads() == first
    _flip(events, events.dataset(taken).files[3].blob)
    assert events.take(force="b") == taken and events.store.verify(taken.snapshot)
    assert list(events.store.objects.list("quarantine"))
