"""Published definitions: they mean what the folder says, and no comment, layout or order is in them."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from gatehouse.features.database import connect
from gatehouse.features.definitions.published import published_files
from gatehouse.features.definitions.repository import Repository, check_out, read_repository
from gatehouse.features.definitions.sql_text import code
from gatehouse.store.store import ArtifactStore

JOINED = ["SELECT 'a'\n'b'", "SELECT 'a' -- one\n  'b'", "SELECT /* two */ 'a'\n\n\n'b', 1 - -1, 2 -- three\n- 1"]


def _plain(repository: Repository, folder: Path) -> Repository:
    """The repository as one of another folder, with its SQL and descriptions as they are published."""

    def bare(definition: Any) -> Any:
        return definition.model_copy(update={"description": ""})

    def query(view: Any) -> Any:
        return replace(view, spec=bare(view.spec), query=code(view.query))

    return replace(
        repository,
        folder=folder,
        macros=code(repository.macros),
        staging={name: code(text) for name, text in repository.staging.items()},
        histories={name: code(text) for name, text in repository.histories.items()},
        views={name: query(view) for name, view in repository.views.items()},
        on_demand={name: query(view) for name, view in repository.on_demand.items()},
        services={name: bare(service) for name, service in repository.services.items()},
        label=bare(repository.label),
        entity_rows=code(repository.entity_rows),
    )


def test_what_is_checked_out_is_what_was_published(repository: Repository, tmp_path: Path) -> None:
    store = ArtifactStore.open(tmp_path / "store")
    reference = str(store.publish("config", "flights", published_files(repository)))
    checked_out = check_out(store, reference, tmp_path / "out")
    assert checked_out == _plain(repository, tmp_path / "out")
    assert [*checked_out.views["origin_weather"].columns] == [*repository.views["origin_weather"].columns]


def test_comments_layout_and_order_are_in_no_file(repository: Repository, tmp_path: Path) -> None:
    copy = tmp_path / "repo"
    shutil.copytree(repository.folder, copy, ignore=shutil.ignore_patterns("__pycache__"))
    source = 'weather = Source(table="weather", event_time="time_hour")\n'
    text = (copy / "definitions.py").read_text()
    assert source in text
    (copy / "definitions.py").write_text(f"# First.\n{text.replace(source, '', 1)}\n{source}")
    for path in copy.rglob("*.sql"):
        path.write_text("-- What it does.\n" + path.read_text().replace("FROM ", "\n  FROM "))
    (copy / "feature_store.yaml").write_text("# Where to.\n" + (copy / "feature_store.yaml").read_text())
    assert published_files(read_repository(copy)) == published_files(repository)


def test_sql_without_comments_means_the_same_to_duckdb(repository: Repository) -> None:
    views = [*repository.views.values(), *repository.on_demand.values()]
    queries = [view.query for view in views] + [*repository.staging.values(), *repository.histories.values()]
    with connect() as connection:
        for query in (*queries, repository.entity_rows, *JOINED):
            assert _parsed(connection, code(query)) == _parsed(connection, query), query


def _parsed(connection: Any, query: str) -> Any:
    """The syntax tree that DuckDB sees, without the places of its parts."""
    text = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchone()[0]
    tree = json.loads(re.sub(r'"query_location\w*":[^,}]+', '"place":0', text))
    assert not tree["error"], tree
    return tree
