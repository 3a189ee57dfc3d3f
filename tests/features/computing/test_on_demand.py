"""On-demand features: the same for a training set, for one online request, and for Feast's own clients."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.features.computing.on_demand import on_demand_features, with_on_demand
from gatehouse.features.definitions.repository import Repository, read_repository
from gatehouse.features.point_in_time.feast_store import applied
from gatehouse.features.table_files import Files
from gatehouse.online.serving import online_features
from gatehouse.online.sqlite import SqliteOnline
from gatehouse.online.store import OnlineStore, online_view
from gatehouse.store.store import ArtifactStore
from tests.features.shops import AS_OF, retrieved, write_repository


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return read_repository(write_repository(tmp_path_factory.mktemp("repo")))


@pytest.fixture(scope="module")
def training(
    tmp_path_factory: pytest.TempPathFactory, repository: Repository
) -> tuple[pa.Table, dict[str, Any], OnlineStore, Files]:
    """The training set with its details; the online store of the same feature table; and that table."""
    folder = tmp_path_factory.mktemp("shops")
    table, details, sales = retrieved(ArtifactStore.open(folder / "store"), folder, "both")
    online = SqliteOnline(folder / "online.db", "shops")
    online.write(online_view(repository.views["sales"]), pq.read_table([*sales.values()]))
    return table, details, online, sales


def test_a_training_set_has_the_values_of_requests_and_what_follows_from_them(
    training: tuple[pa.Table, dict[str, Any], OnlineStore, Files],
) -> None:
    table, details, _, _ = training
    assert details["numeric"] == ["turnover", "share"]
    assert details["categorical"] == ["region", "place"]
    assert details["views"] == {"sales": ["turnover", "region"]}
    assert table.num_rows == 120
    for row in table.to_pylist():
        complete = row["amount"] is not None and row["turnover"] is not None
        expected = np.float32(row["amount"]) / np.float32(row["turnover"]) if complete else None
        assert row["share"] == expected
        named = row["region"] and row["currency"]
        assert row["place"] == (f"{row['region']} {row['currency'].upper()}" if named else None)
    assert 0 < table["share"].null_count < 60


def test_feasts_own_clients_get_the_same_features(
    repository: Repository, training: tuple[pa.Table, dict[str, Any], OnlineStore, Files], tmp_path: Path
) -> None:
    table, _, _, sales = training
    with applied(repository, {"sales": sales}, tmp_path) as feast:
        rows = table.select(["shop", "amount", "currency"]).append_column("event_timestamp", table["decision_time"])
        service = feast.get_feature_service("both")
        joined = feast.get_historical_features(entity_df=rows.to_pandas(), features=service).to_arrow()
    for name in ("turnover", "region", "share", "place"):
        assert joined[name].to_pylist() == table[name].to_pylist(), name


def test_requests_that_lack_or_mistake_a_value_are_named(
    repository: Repository, training: tuple[pa.Table, dict[str, Any], OnlineStore, Files]
) -> None:
    online = training[2]
    for request, message in (
        ({"shop": 1, "amount": 2.0}, "Request 0: currency is missing"),
        ({"shop": "one", "amount": 2.0, "currency": "eur"}, "Request 0: shop: .*found 'one'"),
        ({"shop": 1, "amount": 10**30, "currency": "eur"}, "Request 0: amount: .*found 1000"),
        ({"shop": 1, "amount": 1, "currency": 7}, "Request 0: currency: .*found 7"),
        ({"shop": 1, "amount": 1, "currency": "eur", "amout": 2}, "amout is not used .*did you mean amount"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            online_features(repository, "both", online, [request], AS_OF)
    whole = {"shop": 1.0, "amount": 1e30, "currency": "eur"}
    assert online_features(repository, "both", online, [whole], AS_OF)["amount"].to_pylist() == [1e30]
    with pytest.raises(ConfigurationError, match=r"on_demand/basket\.sql does not run"):
        online_features(repository, "both", online, [whole | {"amount": 1e300}], AS_OF)
    with pytest.raises(ConfigurationError, match="no feature service 'none': expected one of both, stored"):
        online_features(repository, "none", online, [], AS_OF)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT amount - avg(amount) OVER () AS share, region AS place FROM rows", "same result for a row alone"),
        ("SELECT max(amount) AS share, min(region) AS place FROM rows", "for each of the 3 in `rows`, found 1"),
        ("SELECT amount AS share, region AS place FROM rows WHERE amount > 2", "for each of the 3 in `rows`, found 1"),
        ("SELECT amount AS share, region AS place FROM rows ORDER BY amount DESC", "same result for a row alone"),
        ("SELECT random() AS share, region AS place FROM rows", r"on_demand/basket\.sql:1: expected the same rows"),
        ("SELECT amount AS share FROM rows", "basket.sql does not run"),
        ("SELECT amount AS share, decided AS place FROM rows", "basket.sql does not run"),
    ],
)
def test_a_query_that_is_not_of_one_row_is_refused(tmp_path: Path, query: str, message: str) -> None:
    changed = read_repository(write_repository(tmp_path, **{"on_demand__basket.sql": query}))
    rows = pa.table({"amount": [1.0, 2.0, 3.0], "currency": ["eur"] * 3, "turnover": [5.0] * 3, "region": ["r1"] * 3})
    with pytest.raises(ConfigurationError, match=message):
        with_on_demand(changed.on_demand.values(), rows, alone=True)
    with pytest.raises(ConfigurationError, match="expected region among the features and request values"):
        on_demand_features(changed.on_demand["basket"], rows.drop_columns("region"))
