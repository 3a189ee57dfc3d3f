"""What serving would give a model is held against what it was trained on, whatever the online store holds."""

import re
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.repository import read_repository
from gatehouse.features.table_files import Files, feature_files
from gatehouse.online import standing
from gatehouse.online.materialization import materialize_views
from gatehouse.online.opening import open_online, sqlite_file
from gatehouse.online.serving.stage import CompareOnlineRequest, CompareOnlineResult, compare_online
from gatehouse.online.skew import Skew, measure_skew
from gatehouse.online.store import OnlineStore, epoch_us, online_view
from gatehouse.store.store import ArtifactStore
from tests.features import shops

SECOND = """places = FeatureView(
    name="places",
    entities=("shop",),
    available=Available("event_timestamp"),
    window=timedelta(0),
    ttl=timedelta(days=3),
    features={"place_of": "categorical"},
)
"""


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
    assert found.reasons[0].startswith("The online store has no values of sales.")

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
    assert found.verdict == "fail" and "computes features of the service both differently" in found.reasons[0]


def test_rows_of_tables_that_are_gone_are_not_compared(tmp_path: Path) -> None:
    store = ArtifactStore.open(tmp_path / "store")
    *_, sales = shops.retrieved(store, tmp_path, "both")
    written(store, sales, tmp_path / "repo", reference=f"feature-tables/shops/sha256-{'0' * 64}")
    assert compared(store).verdict == "not checked"


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (
            {"pushed": epoch_us(shops.AS_OF) + 1},
            "expected the batch that was pushed .* up to 2024-01-09T00:00:00.000001",
        ),
        ({"target": "other rows"}, "found a writer 3 times"),
    ],
)
def test_rows_that_another_writes_are_not_compared(tmp_path: Path, state: dict[str, Any], reason: str) -> None:
    store = ArtifactStore.open(tmp_path / "store")
    *_, sales = shops.retrieved(store, tmp_path, "both")
    written(store, sales, tmp_path / "repo")
    online = open_online(store, "shops", tmp_path / "repo")
    before = online.state("sales")
    assert online.swap("sales", before, replace(before, pushed=before.known)) and compared(store).verdict == "pass"
    online.swap("sales", online.state("sales"), replace(before, **state))
    found = compared(store)
    assert found.verdict == "not checked" and re.search(reason, found.reasons[0])


def test_a_view_that_was_pushed_from_elsewhere_is_left_out_and_the_others_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = shops.DEFINITIONS.replace("basket =", SECOND + "basket =").replace(
        'views=("sales",), on', 'views=("sales", "places"), on'
    )
    monkeypatch.setitem(
        shops.QUERIES, "views/places.sql", "SELECT shop, day AS event_timestamp, region AS place_of FROM raw.trade"
    )
    monkeypatch.setattr(shops, "DEFINITIONS", two)
    store = ArtifactStore.open(tmp_path / "store")
    shops.retrieved(store, tmp_path, "both", written=two)
    (tables,) = map(str, store.references("feature-tables", "shops"))
    repository = read_repository(shops.write_repository(tmp_path / "repo", **{"definitions.py": two}))
    online = open_online(store, "shops", repository.folder)
    files = {name: [*each.values()] for name, each in feature_files(store, tables).items()}
    materialize_views(
        online, [online_view(repository.views[each]) for each in files], files, shops.AS_OF, reference=tables
    )
    before = online.state("sales")
    online.swap("sales", before, replace(before, pushed=epoch_us(shops.AS_OF) + 1))
    found = compared(store)
    assert found.verdict == "pass" and found.values > shops.SHOPS
    (reason,) = found.reasons
    assert reason.startswith("sales: expected the batch that was pushed")
    told = {each["view"]: each for each in store.read_json(found.comparison, "online.json")}
    assert (told["sales"]["not_compared"], told["sales"]["values"]) == (reason, 0)
    assert (told["places"]["not_compared"], told["places"]["values"]) == ("", found.values)
    with sqlite3.connect(sqlite_file(store, "shops")) as connection:
        connection.execute("UPDATE shops_places SET value = NULL WHERE feature_name = 'place_of'")
    found = compared(store)
    assert found.verdict == "fail" and "place_of" in found.reasons[0] and found.reasons[-1] == reason


def test_a_view_that_is_written_meanwhile_is_compared_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ArtifactStore.open(tmp_path / "store")
    *_, sales = shops.retrieved(store, tmp_path, "both")
    written(store, sales, tmp_path / "repo")
    times = []

    def meanwhile(online: OnlineStore, *asked: Any) -> Skew:
        times.append(online.state("sales"))
        if len(times) == 1:
            online.swap("sales", times[0], replace(times[0], past="written anew"))
            return Skew(())
        return measure_skew(online, *asked)

    monkeypatch.setattr(standing, "measure_skew", meanwhile)
    assert compared(store).verdict == "pass" and len(times) == 2


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (None, "names GATEHOUSE_ONLINE_STORE, which the environment does not set"),
        ("localhost:1", "localhost:1"),
    ],
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
    found = compared(store)
    assert found.verdict == "not checked" and reason in found.reasons[0]


def test_definitions_that_are_wrong_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ArtifactStore.open(tmp_path / "store")
    *_, sales = shops.retrieved(store, tmp_path, "both")
    written(store, sales, tmp_path / "repo")

    def wrong(*_: object) -> None:
        raise ConfigurationError("labels/returned.sql does not run")

    monkeypatch.setattr(standing, "decided_last", wrong)
    with pytest.raises(ConfigurationError, match="does not run"):
        compared(store)


def test_a_comparison_is_derived_from_the_tables_whose_values_it_shows(tmp_path: Path) -> None:
    store = ArtifactStore.open(tmp_path / "store")
    *_, sales = shops.retrieved(store, tmp_path, "both")
    (tables,) = map(str, store.references("feature-tables", "shops"))
    written(store, sales, tmp_path / "repo", reference=tables)
    assert tables in store.manifest(compared(store).comparison).derived_from.values()
