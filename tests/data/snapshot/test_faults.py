"""Faults: killed half-way, no space left, a table far larger than memory; nothing half-visible, a repeat ends well."""

import resource
import signal
import subprocess
import sys

import pytest

from gatehouse.errors import StoreError
from tests.data.snapshot.conftest import Events

_TAKE = """
import itertools, resource, sys
from pathlib import Path
from gatehouse.store.store import ArtifactStore
from tests.data.snapshot.conftest import Events
from gatehouse.data.snapshot import parts
folder, store, rows, last = sys.argv[1:]
kept, begun = parts._store, itertools.count(1)
def store_part(*arguments):
    if next(begun) == int(last):
        print("there", flush=True)
        sys.stdin.read()
    return kept(*arguments)
parts._store = store_part
taken = Events(Path(folder), ArtifactStore.open(store), rows_per_part=int(rows)).take()
print(taken.snapshot, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def _process(events: Events, rows: int = 30, last: int = 0) -> "subprocess.Popen[str]":
    """A process that takes a snapshot; before it stores part number `last`, it says so and waits for ever."""
    arguments = [str(events.folder), events.store.address, str(rows), str(last)]
    return subprocess.Popen(
        [sys.executable, "-c", _TAKE, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_killed_half_way_leaves_nothing_visible_and_a_repeat_is_whole(events: Events) -> None:
    process = _process(events, last=12)
    assert process.stdout is not None and process.stdout.readline() == "there\n"
    process.kill()
    process.communicate()
    assert list(events.store.objects.list("blobs"))
    assert list(events.store.references()) == []
    taken = events.take()
    assert events.read(taken)["id"].to_pylist() == list(range(600))
    assert events.store.verify(taken.snapshot) == 2


def test_no_space_left_is_an_error_that_says_so(events: Events) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(StoreError, match="could not be written to the store"):
            events.take()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert list(events.store.references()) == []
    assert events.take().rows == {"events": 600}
