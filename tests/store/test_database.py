"""DuckDB keeps inside what the process may use, and spills what is more."""

from pathlib import Path

import pytest

from gatehouse.runtime import limits
from gatehouse.store.database import connect

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


def test_nothing_else_opens_duckdb() -> None:
    rooms = [ROOT / "components", ROOT / "gatehouse", ROOT / "pipelines"]
    openers = {path for room in rooms for path in room.rglob("*.py") if "duckdb.connect(" in path.read_text()}
    assert {path.resolve() for path in openers} == {ROOT / "gatehouse/store/database.py"}
