"""DuckDB keeps inside what the process may use, and spills what is more."""

from pathlib import Path

import duckdb
import pytest

from gatehouse.errors import StoreError
from gatehouse.features.computing.compute import run
from gatehouse.runtime import limits
from gatehouse.store.database import connect, out_of_memory

ROOT = Path(__file__).parents[2]


def setting(name: str, **options: object) -> str:
    with connect(**options) as database:  # type: ignore[arg-type]  # Options of several types.
        return str(database.execute(f"SELECT current_setting('{name}')").fetchall()[0][0])


def test_limits_follow_those_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "memory", lambda: 400 << 20)
    monkeypatch.setattr(limits, "processors", lambda: 3)
    assert setting("memory_limit") == "200.0 MiB"
    assert setting("threads") == "3"
    assert setting("memory_limit", most=64 << 20) == "64.0 MiB"
    assert setting("memory_limit", most=1 << 40) == "200.0 MiB"
    assert setting("threads", threads=1) == "1"


def test_what_does_not_fit_waits_on_disk_and_is_removed(tmp_path: Path) -> None:
    spill = tmp_path / "spill"
    with connect(spill=spill, most=64 << 20, threads=1) as database:
        database.execute("CREATE TABLE big AS SELECT range AS n, hash(range) AS h FROM range(10_000_000)")
        assert any(spill.iterdir())
        assert database.execute("SELECT count(*), sum(n) FROM (FROM big ORDER BY h)").fetchall()[0][0] == 10_000_000
    assert not spill.exists() or not any(spill.iterdir())


def test_a_full_disk_is_neither_full_memory_nor_a_wrong_query(tmp_path: Path) -> None:
    query = "CREATE TABLE big AS SELECT range AS n, hash(range) AS h FROM range(5_000_000)"
    with connect(spill=tmp_path, most=32 << 20, threads=1) as database:
        database.execute("SET max_temp_directory_size = '1MB'")  # DuckDB itself sets it to the room on the disk.
        with pytest.raises(StoreError, match="TMPDIR"):
            run(database, query, "views/big.sql")
    assert isinstance(out_of_memory(duckdb.IOException("IO Error: No space left on device")), StoreError)


def test_nothing_else_opens_duckdb() -> None:
    rooms = [ROOT / "components", ROOT / "gatehouse", ROOT / "pipelines"]
    openers = {path for room in rooms for path in room.rglob("*.py") if "duckdb.connect(" in path.read_text()}
    assert {path.resolve() for path in openers} == {ROOT / "gatehouse/store/database.py"}
