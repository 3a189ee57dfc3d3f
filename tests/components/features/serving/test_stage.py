"""What serving would give a model is held against what it was trained on, whatever the online store holds."""

import sqlite3
from pathlib import Path

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.features.definitions.repository import read_repository
from gatehouse.components.features.online.materialization import materialize_views
from gatehouse.components.features.online.opening import open_online, sqlite_file
from gatehouse.components.features.online.store import online_view
from gatehouse.components.features.serving.stage import CompareOnlineRequest, CompareOnlineResult, compare_online
from gatehouse.components.features.table_files import Files
from tests.components.features import shops


def compared(store: ArtifactStore, max_skew: float = 0.0) -> CompareOnlineResult:
    """The comparison of the only training set."""
    (training_set,) = store.references("training-sets", "both")
    return compare_online.function(CompareOnlineRequest(training_set=str(training_set), max_skew=max_skew), store)


def written(store: ArtifactStore, sales: Files, folder: Path, reference: str = "") -> None:
    """Bring the online store up to the newest sales."""
    repository = read_repository(shops.write_repository(folder))
    views, tables = [online_view(repository.views["sales"])], {"sales": [*sales.values()]}
    materialize_views(open_online(store, "shops", repository.folder), views, tables, shops.AS_OF, reference=reference)


def test_what_the_online_store_holds_is_compared_and_what_it_lacks_is_not(tmp_path: Path) -> None:
    store = ArtifactStore.open(tmp_path / "store")
    *_, sales = shops.retrieved(store, tmp_path, "both")
    found = compared(store)
    assert (found.verdict, found.values) == ("not checked", 0)
    assert found.reasons[0].startswith("The online store holds nothing of sales.")

    written(store, sales, tmp_path / "repo")
    found = compared(store)
    assert (found.verdict, found.reasons) == ("pass", ()) and found.values > shops.SHOPS
    (told,) = store.read_json(found.comparison, "online.json")
    assert (told["view"], told["as_of"], told["differing"]) == ("sales", shops.AS_OF.isoformat(), 0)

    with sqlite3.connect(sqlite_file(store, "shops")) as connection:
        connection.execute("UPDATE shops_sales SET value = NULL WHERE feature_name = 'turnover'")
    found = compared(store)
    assert found.verdict == "fail" and "read online differ from the offline ones: turnover" in found.reasons[0]
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
    found = compared(store)
    assert found.verdict == "fail" and "features of the service both are made in another way" in found.reasons[0]


def test_rows_of_tables_that_are_gone_are_not_compared(tmp_path: Path) -> None:
    store = ArtifactStore.open(tmp_path / "store")
    *_, sales = shops.retrieved(store, tmp_path, "both")
    written(store, sales, tmp_path / "repo", reference=f"feature-tables/shops/sha256-{'0' * 64}")
    assert compared(store).verdict == "not checked"
