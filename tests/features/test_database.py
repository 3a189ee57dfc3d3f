"""The DuckDB instance that the connections of a process share."""

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

import duckdb
import pytest

from gatehouse.features.database import connect, cursor, shared

_FORKED = """
import os, sys
from gatehouse.features.database import connect
with connect() as connection:
    connection.execute("SELECT 1")
child = os.fork()
with connect() as connection:
    assert connection.execute("SELECT 2").fetchone() == (2,)
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_connections_see_nothing_of_each_other_and_leave_nothing() -> None:
    with connect() as one, connect() as other:
        one.execute("CREATE TABLE features.mine AS SELECT 1")
        with pytest.raises(duckdb.CatalogException):
            other.sql("FROM features.mine")
    assert (
        shared()
        .sql("SELECT database_name FROM duckdb_databases() WHERE database_name LIKE 'of\\_%' ESCAPE '\\'")
        .fetchall()
        == []
    )


def test_threads_share_one_instance() -> None:
    with ThreadPoolExecutor(8) as threads:
        assert len({id(each) for each in threads.map(lambda _: shared(), range(8))}) == 1


def test_a_forked_process_has_its_own_instance_and_ends() -> None:
    assert subprocess.run([sys.executable, "-c", _FORKED], timeout=60, check=False).returncode == 0


def _fail(translated: bool) -> None:
    try:
        raise duckdb.FatalException("as if the database were invalidated")
    except duckdb.Error:
        if translated:
            raise ValueError("the query does not run") from None
        raise


@pytest.mark.parametrize("opened", [connect, cursor])
@pytest.mark.parametrize("translated", [False, True])
def test_after_a_fatal_error_the_next_connection_has_another_instance(
    opened: Callable[[], AbstractContextManager[duckdb.DuckDBPyConnection]], translated: bool
) -> None:
    before = shared()
    with pytest.raises((duckdb.FatalException, ValueError)), opened():
        _fail(translated)
    with opened() as connection:
        assert shared() is not before and connection.execute("SELECT 1").fetchone() == (1,)
