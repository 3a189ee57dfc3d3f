"""MLflow's database, when a process is killed at any point while it creates or migrates the schema."""

import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event

from gatehouse.errors import StoreError
from gatehouse.tracking.mlflow_client import load_mlflow, quiet_client
from gatehouse.tracking.runs import RunReader
from gatehouse.tracking.schema import ensure_schema

_KILLED = """
import resource, signal, sys
from gatehouse.tracking.mlflow_client import quiet_client
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, resource.RLIM_INFINITY))
quiet_client(sys.argv[1])
"""
"""The system kills the process when it writes the file beyond the limit: in the middle of the last step."""


def _url(database: Path) -> str:
    return f"sqlite:///{database}"


def _execute(database: Path, statements: str) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(statements)


@pytest.fixture(scope="module")
def migrations() -> Any:
    load_mlflow()
    from mlflow.store.db import utils

    return utils


@pytest.fixture(scope="module")
def halves(migrations: Any, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[bytes, str]]:
    """The file that MLflow leaves if it is killed at the end of each migration, and the statement that ends it."""
    file, states = tmp_path_factory.mktemp("halves") / "mlflow.db", []
    engine = create_engine(_url(file))

    @event.listens_for(engine, "before_cursor_execute")
    def keep(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("UPDATE alembic_version"):
            states.append((file.read_bytes(), statement))

    migrations._initialize_tables(engine)
    engine.dispose()
    return states


@pytest.mark.parametrize("models", [[], ["mine"]], ids=["new", "older"])
def test_a_database_is_as_before_until_the_last_step_and_after_a_kill_in_it(
    models: list[str], halves: list[tuple[bytes, str]], tmp_path: Path
) -> None:
    file = tmp_path / "mlflow.db"
    if models:
        half, end = halves[len(halves) // 2]
        file.write_bytes(half)
        _execute(file, f"{end}; INSERT INTO registered_models (name) VALUES ('mine')")
    before = file.read_bytes() if models else b""
    command = [sys.executable, "-B", "-c", _KILLED, _url(file)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGXFSZ
    assert file.stat().st_size > len(before) and file.with_name("mlflow.db-journal").exists()
    states: list[bytes] = []

    def look(*_: Any) -> None:
        states.append(file.read_bytes())

    event.listen(Engine, "before_cursor_execute", look)
    ensure_schema(_url(file))
    event.remove(Engine, "before_cursor_execute", look)
    assert len(states) > 100 and set(states) == {before}
    assert [model.name for model in quiet_client(_url(file)).search_registered_models()] == models


def test_what_a_kill_in_any_migration_of_mlflow_left_is_replaced(
    halves: list[tuple[bytes, str]], migrations: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure_schema(_url(tmp_path / "whole.db"))
    whole = sqlite3.connect(tmp_path / "whole.db")

    def initialize(engine: Engine) -> None:
        """As MLflow does, but fast."""
        draft = engine.raw_connection().driver_connection
        assert not draft.execute("SELECT * FROM sqlite_master").fetchall()
        whole.backup(draft)

    monkeypatch.setattr(migrations, "_initialize_tables", initialize)
    assert len(halves) > 50
    with closing(whole):
        for number, (half, end) in enumerate(halves):
            file = tmp_path / f"{number}.db"
            file.write_bytes(half)
            ensure_schema(_url(file))
            with closing(sqlite3.connect(file)) as database:
                assert list(database.iterdump()) == list(whole.iterdump()), end
    assert list(RunReader(_url(file)).runs()) == []


def test_a_database_that_cannot_be_migrated_is_an_error_and_unchanged(
    halves: list[tuple[bytes, str]], tmp_path: Path
) -> None:
    half, other = tmp_path / "half.db", tmp_path / "other.db"
    half.write_bytes(halves[-3][0])
    _execute(half, "INSERT INTO registered_models (name) VALUES ('mine')")
    other.write_text("no database" * 100)
    for file in (half, other):
        before = file.read_bytes()
        with pytest.raises(StoreError, match=file.name):
            RunReader(_url(file))
        assert file.read_bytes() == before


def test_only_the_first_of_two_at_once_creates_the_schema(
    migrations: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, created = migrations._initialize_tables, []
    monkeypatch.setattr(migrations, "_initialize_tables", lambda engine: (created.append(engine), create(engine)))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(ensure_schema, [_url(tmp_path / "new" / "mlflow.db")] * 2))
    assert len(created) == 1
