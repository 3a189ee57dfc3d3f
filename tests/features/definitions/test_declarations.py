"""Definitions: what is wrong is listed at once with what to write, and a change of meaning needs a new version."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.features.computing.compute import run_macros
from gatehouse.features.database import connect
from gatehouse.features.definitions.changes import changes, code_of, definition_of, require_one_meaning
from gatehouse.features.definitions.repository import Repository, read_repository, tables_of
from gatehouse.features.definitions.sql_text import code


@pytest.fixture
def copy(repository: Repository, tmp_path: Path) -> Path:
    shutil.copytree(repository.folder, tmp_path / "repo", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "repo"


def edit(folder: Path, file: str, before: str, after: str) -> None:
    text = (folder / file).read_text()
    assert before in text
    (folder / file).write_text(text.replace(before, after, 1))


def test_reading_definitions_loads_neither_feast_nor_duckdb(repository: Repository) -> None:
    program = (
        "import sys; from pathlib import Path; "
        "from gatehouse.features.definitions.repository import read_repository; "
        f"read_repository(Path({str(repository.folder)!r})); "
        "sys.exit(', '.join({'feast', 'duckdb', 'pyarrow', 'pandas'} & set(sys.modules)) or 0)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_all_problems_are_listed_at_once(copy: Path) -> None:
    edit(copy, "definitions.py", '    available=Available("event_timestamp"),\n', "")
    edit(copy, "definitions.py", '    entities=("dest",),', '    entities=("destination",),')
    edit(copy, "definitions.py", '        "dest_traffic",\n', '        "dest_traffic",\n        "nothing",\n')
    (copy / "views" / "aircraft.sql").unlink()
    edit(copy, "views/dest_traffic.sql", "INTERVAL 30 DAY", "getvariable('window') * $1")
    with pytest.raises(ConfigurationError) as caught:
        read_repository(copy)
    text = str(caught.value)
    assert 'flight_schedule: states no availability: expected available=Available("<column>"' in text
    assert "dest_traffic: entities: no Entity 'destination'" in text
    assert "flight_delay: views: no FeatureView 'nothing'" in text
    assert "aircraft: expected its query in views/aircraft.sql, found none" in text
    assert "views/dest_traffic.sql: the positional parameter $1: expected getvariable('as_of')" in text
    assert "views/dest_traffic.sql: the unknown parameter 'window'" in text


def test_definitions_that_do_not_run_say_so(copy: Path) -> None:
    edit(copy, "definitions.py", "SEEN = 31 * DAY", "SEEN = 31 * DAYS")
    with pytest.raises(ConfigurationError, match=r"definitions\.py:\d+ does not run: NameError"):
        read_repository(copy)


@pytest.mark.parametrize(
    ("before", "after", "needs"),
    [
        ('"visibility": "numeric",', '"visibility": "numeric",\n        "gusts": "numeric",', ""),
        ('        "visibility": "numeric",\n', "", "feature visibility removed"),
        ('"visibility": "numeric"', '"visibility": "categorical"', "feature visibility: numeric became categorical"),
        ("window=6 * HOUR", "window=7 * HOUR", "window: 6:00:00 became 7:00:00"),
        ("ttl=3 * HOUR", "ttl=4 * HOUR", "ttl: 3:00:00 became 4:00:00"),
    ],
)
def test_a_changed_meaning_needs_a_new_version(
    repository: Repository, copy: Path, before: str, after: str, needs: str
) -> None:
    edit(copy, "definitions.py", before, after)
    if not needs:
        require_one_meaning(repository, read_repository(copy), "The store", repository.views)
        assert changes(repository, read_repository(copy)) == {"origin_weather": ["feature gusts added"]}
        return
    with pytest.raises(ConfigurationError, match=f"origin_weather: {needs}: expected another version than 1"):
        require_one_meaning(repository, read_repository(copy), "The store", repository.views)
    edit(copy, "definitions.py", 'name="origin_weather",', 'name="origin_weather",\n    version=2,')
    require_one_meaning(repository, read_repository(copy), "The store", repository.views)
    assert changes(repository, read_repository(copy)) == {"origin_weather": [needs, "version: 1 became 2"]}


@pytest.mark.parametrize(
    "statement",
    [
        "create  macro Twice(x)",
        "CREATE /* or not */ MACRO twice (x)",
        "CREATE OR REPLACE MACRO twice(x)",
        "CREATE MACRO IF NOT EXISTS twice(x)",
    ],
)
def test_a_changed_macro_is_noticed_and_macros_run_again(repository: Repository, copy: Path, statement: str) -> None:
    edit(copy, "views/aircraft.sql", "seats", "twice(seats)")
    repositories = []
    for number in (2, 3):
        (copy / "macros.sql").write_text(f"{repository.macros}\n{statement} AS {number} * x;\n")
        repositories.append(read_repository(copy))
    assert changes(*repositories) == {"aircraft": ["code macro twice"]}
    with connect() as connection:
        for changed in (repositories[0], *repositories):
            run_macros(connection, changed)
        assert connection.execute("SELECT twice(1)").fetchall() == [(3,)]


def test_what_a_view_reads_is_found_through_staging_and_macros(repository: Repository) -> None:
    view = repository.views["origin_traffic"]
    assert tables_of(repository, [view.query]) == ["airports", "flights"]
    assert {"macro grid_point", "macro next_clock", "staging/zones.sql"} <= set(code_of(repository, view))
    assert "staging/weather.sql" not in code_of(repository, view)
    assert definition_of(repository, view)["sources"] == {
        "flights": {"table": "flights", "event_time": "time_hour", "lead": "P1D"}
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("SELECT a b", "SELECT ab"),
        ("SELECT 'a b'", "SELECT 'a  b'"),
        ("SELECT '-- a'", "SELECT '-- b'"),
        ('SELECT "a -- b"', 'SELECT "a -- c"'),
        ("SELECT E'\\' -- a'", "SELECT E'\\' -- b'"),
        ("SELECT $$ -- a$$", "SELECT $$ -- b$$"),
        ("SELECT 'a'", 'SELECT "a"'),
        ("SELECT 1 - -1", "SELECT 1 --1"),
        ("SELECT a < -1", "SELECT a <-1"),
    ],
)
def test_what_queries_say_is_their_code(before: str, after: str) -> None:
    assert code(before) != code(after)


def test_all_mistakes_of_a_definition_are_named_with_its_line(copy: Path) -> None:
    edit(copy, "definitions.py", 'Available("landed_at")', 'Available("landed_at", lag=-HOUR)')
    with pytest.raises(ConfigurationError, match=r"definitions\.py:\d+: Available: lag: "):
        read_repository(copy)
    edit(copy, "definitions.py", 'Available("landed_at", lag=-HOUR)', 'Available("landed_at")')
    edit(copy, "definitions.py", "window=6 * HOUR", "window=-6 * HOUR, windoww=1")
    edit(copy, "definitions.py", "ttl=3 * HOUR", "ttl=-3 * HOUR")
    with pytest.raises(ConfigurationError, match=r"definitions\.py:\d+: FeatureView origin_weather: ") as caught:
        read_repository(copy)
    assert all(f"origin_weather: {key}: " in str(caught.value) for key in ("window", "ttl", "windoww"))


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ('classes=("a", "b"),', "classes: expected none for the task binary, found 2"),
        ('task="multiclass", classes=("a", "a"),', "classes: expected two different names at least"),
        ('task="ranking",', "group: expected the entity whose rows are ranked together .*, found ''"),
        ('task="regression", group="carrier",', "group: expected none for the task regression, found 'carrier'"),
        ('task="clustering",', "task: expected one of binary, multiclass, regression, ranking"),
    ],
)
def test_what_a_label_declares_fits_its_task(copy: Path, declared: str, problem: str) -> None:
    edit(copy, "definitions.py", '    name="late_arrival",\n', f'    name="late_arrival",\n    {declared}\n')
    with pytest.raises(ConfigurationError, match=problem):
        read_repository(copy)
