"""The schema of MLflow's SQLite databases, which is created or migrated in one transaction.

MLflow commits after each statement of its migrations, and cannot continue after a process that was killed within one.
Here they run in a temporary database, which SQLite then copies over the file. If a process is killed meanwhile, the
file is as before: SQLite rolls it back when it is opened again.
"""

import fcntl
import sqlite3
from contextlib import closing
from functools import cache
from importlib import import_module
from pathlib import Path

from gatehouse.errors import StoreError

_MIGRATIONS = "mlflow.store.db.utils"
_THEIR_ROWS = {"alembic_version": 1, "workspaces": 1}
"""How many rows the migrations themselves write, by table."""
_WAIT = 60.0


def ensure_schema(uri: str) -> None:
    """Create or migrate the schema of MLflow's database at `uri`; one that is up to date, or a server, is left alone.

    All rows are kept. Tables without rows that an interrupted creation left are replaced. Processes that call this at
    the same time wait for each other. Raises StoreError if a database cannot be migrated, which is then unchanged.
    """
    if not uri.startswith("sqlite"):
        return
    from alembic.util import CommandError
    from sqlalchemy import StaticPool, create_engine, make_url
    from sqlalchemy.exc import SQLAlchemyError

    file = Path(make_url(uri).database or ":memory:")
    if file.name == ":memory:":
        return
    try:
        if _is_current(file):
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file.with_name(f"{file.name}.lock"), "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _is_current(file):
                return
            with closing(sqlite3.connect("")) as draft, closing(sqlite3.connect(file, _WAIT)) as database:
                if not _is_remnant(database):
                    database.backup(draft)
                engine = create_engine("sqlite://", creator=lambda: draft, poolclass=StaticPool)
                import_module(_MIGRATIONS)._initialize_tables(engine)
                draft.backup(database)
    except (sqlite3.Error, SQLAlchemyError, CommandError) as error:
        raise StoreError(
            f"{file}: expected a database of the installed MLflow or of an older one, found one that cannot be "
            f"migrated ({str(error).splitlines()[0]}). Move the file away, and the next run creates a new one."
        ) from error


def _is_current(file: Path) -> bool:
    if not file.is_file():
        return False
    with closing(sqlite3.connect(file, _WAIT)) as database:
        if "alembic_version" not in _tables(database):
            return False
        return database.execute("SELECT version_num FROM alembic_version").fetchall() == [(_newest(),)]


def _is_remnant(database: sqlite3.Connection) -> bool:
    """Whether a database has nothing but tables of MLflow, and the rows that its migrations write."""
    tables = _tables(database)
    return "alembic_version" in tables and not any(
        database.execute(f'SELECT 1 FROM "{name}" LIMIT 1 OFFSET {_THEIR_ROWS.get(name, 0)}').fetchone()
        for name in tables
    )


def _tables(database: sqlite3.Connection) -> list[str]:
    return [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]


@cache
def _newest() -> str:
    return str(import_module(_MIGRATIONS)._get_latest_schema_revision())
