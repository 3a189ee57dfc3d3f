"""The DuckDB instance that the connections of a process share."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import duckdb
import pytest

from gatehouse.features.database import cursor, shared

_FORKED = """
import os, sys
from gatehouse.features.database import cursor
with cursor() as connection:
    connection.execute("SELECT 1")
child = os.fork()
with cursor() as connection:
    assert connection.execute("SELECT 2").fetchone() == (2,)
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_threads_share_one_instance() -> None:
    with ThreadPoolExecutor(8) as threads:
        assert len({id(instance) for instance in threads.map(lambda _: shared(), range(8))}) == 1


def test_a_forked_process_has_its_own_instance_and_ends() -> None:
    assert subprocess.run([sys.executable, "-c", _FORKED], timeout=60, check=False).returncode == 0


def _fail(translated: bool) -> None:
    try:
        raise duckdb.FatalException("as if the database were invalidated")
    except duckdb.Error:
        if translated:
            raise ValueError("the query does not run") from None
        raise


@pytest.mark.parametrize("translated", [False, True])
def test_after_a_fatal_error_the_next_cursor_has_another_instance(translated: bool) -> None:
    before = shared()
    with pytest.raises((duckdb.FatalException, ValueError)), cursor():
        _fail(translated)
    with cursor() as connection:
        assert shared() is not before and connection.execute("SELECT 1").fetchone() == (1,)
