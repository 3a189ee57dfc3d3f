"""What serving would give a model is held against what it was trained on, whatever the online store holds."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from gatehouse.features.definitions.repository import read_repository
from gatehouse.features.table_files import Files
from gatehouse.online.comparing_stage import CompareOnlineRequest, CompareOnlineResult, compare_online
from gatehouse.online.materialization import materialize_views
from gatehouse.online.serving import open_online, sqlite_file
from gatehouse.online.store import online_view
from gatehouse.store.store import ArtifactStore
from tests.features import shops


def compared(store: ArtifactStore, max_skew: float = 0.0) -> CompareOnlineResult:
    (training_set,) = store.references("training-sets", "both")
    return compare_online.function(CompareOnlineRequest(training_set=str(training_set), max_skew=max_skew), store)


def written(store: ArtifactStore, sales: Files, folder: Path, reference: str = "") -> None:
    repository = read_repository(shops.write_repository(folder))
    views, tables = [online_view(repository.views["sales"])], {"sales": [*sales.values()]}
    materialize_views(open_online(store, "shops", repository.folder), views, tables, shops.AS_OF, reference=reference)


def test_what_the_online_store_holds_is_compared_and_what_it_lacks_is_not(tmp_path: Path) -> None:
    store = ArtifactStore.open(tmp_path / "store")
    *_, sales = shops.retrieved(store, tmp_path, "both")
    result = compared(store)
    assert (result.verdict, result.values) == ("not checked", 0)
    assert result.reasons[0].startswith("The online store has no values of sales.")

    (tables,) = map(str, store.references("feature-tables", "shops"))
    written(store, sales, tmp_path / "repo", tables)
    result = compared(store)
    assert (result.verdict, result.reasons) == ("pass", ()) and result.values > shops.SHOPS
    assert tables in store.manifest(result.comparison).derived_from.values()
    (body,) = store.read_json(result.comparison, "online.json")
    assert (body["view"], body["as_of"], body["differing"]) == ("sales", shops.AS_OF.isoformat(), 0)

    with sqlite3.connect(sqlite_file(store, "shops")) as connection:
        connection.execute("UPDATE shops_sales SET value = NULL WHERE feature_name = 'turnover'")
    result = compared(store)
    assert result.verdict == "fail" and "turnover" in result.reasons[0]
    assert compared(store, max_skew=0.9).verdict == "pass"
    with sqlite3.connect(sqlite_file(store, "shops")) as connection:
        connection.execute("UPDATE shops_sales SET value = NULL")
    assert compared(store, max_skew=0.99).verdict == "fail"


def test_rows_that_were_made_in_another_way_are_no_comparison(tmp_path: Path) -> None:
    store = ArtifactStore.open(tmp_path / "store")
    shops.retrieved(store, tmp_path, "both")
    (before,) = store.references("feature-tables", "shops")
    other = shops.DEFINITIONS.replace("ttl=timedelta(days=3)", "ttl=timedelta(days=2)")
    *_, sales = shops.retrieved(store, tmp_path, "stored", written=other)
    (after,) = {*map(str, store.references("feature-tables", "shops"))} - {str(before)}
    written(store, sales, tmp_path / "repo", reference=after)
    result = compared(store)
    assert result.verdict == "fail" and "computes features of the service both differently" in result.reasons[0]
    written(store, sales, tmp_path / "repo", f"feature-tables/shops/sha256-{'0' * 64}")
    assert compared(store).verdict == "not checked"


def test_a_view_that_another_run_writes_is_not_compared(tmp_path: Path) -> None:
    store = ArtifactStore.open(tmp_path / "store")
    *_, sales = shops.retrieved(store, tmp_path, "both")
    written(store, sales, tmp_path / "repo")
    online = open_online(store, "shops", tmp_path / "repo")
    before = online.state("sales")
    assert online.swap("sales", before, replace(before, last=9))
    result = compared(store)
    assert result.verdict == "not checked" and "being written" in result.reasons[0]


@pytest.mark.parametrize(
    ("server", "reason"),
    [(None, "names GATEHOUSE_ONLINE_STORE, which the environment does not set"), ("localhost:1", "localhost:1")],
)
def test_an_online_store_that_is_not_there_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str | None, reason: str
) -> None:
    redis = "online_store: {type: redis, connection_string: '${GATEHOUSE_ONLINE_STORE}'}"
    settings = shops.QUERIES["feature_store.yaml"].replace("online_store: {type: sqlite}", redis)
    monkeypatch.setitem(shops.QUERIES, "feature_store.yaml", settings)
    monkeypatch.delenv("GATEHOUSE_ONLINE_STORE", raising=False)
    if server:
        monkeypatch.setenv("GATEHOUSE_ONLINE_STORE", server)
    store = ArtifactStore.open(tmp_path / "store")
    shops.retrieved(store, tmp_path, "both")
    result = compared(store)
    assert result.verdict == "not checked" and reason in result.reasons[0]
