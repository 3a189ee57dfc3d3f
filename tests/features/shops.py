"""Shops with their turnover, and orders that bring values of their own: a project with an on-demand view."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gatehouse.features.computing.stage import ComputeRequest, compute_features
from gatehouse.features.point_in_time.stage import RetrieveRequest, retrieve_training_set
from gatehouse.features.table_files import Files, feature_files
from gatehouse.store.store import ArtifactStore
from tests.features.publishing import publish_definitions, write_files

DEFINITIONS = """
from datetime import timedelta
from gatehouse.features.definitions import *

shop = Entity(name="shop", type="int64")
trade = Source(table="trade", event_time="day")
sales = FeatureView(
    name="sales",
    entities=("shop",),
    available=Available("event_timestamp"),
    window=timedelta(0),
    ttl=timedelta(days=3),
    features={"turnover": "numeric", "region": "categorical"},
)
basket = OnDemandView(
    name="basket",
    views=("sales",),
    request={"amount": "numeric", "currency": "categorical"},
    features={"share": "numeric", "place": "categorical"},
)
returned = LabelView(name="returned", entities=("shop",), arrives=Available("decision_time"))
both = FeatureService(name="both", views=("sales",), on_demand=("basket",))
stored = FeatureService(name="stored", views=("sales",))
"""
QUERIES = {
    "views/sales.sql": "SELECT shop, day AS event_timestamp, turnover, region FROM raw.trade",
    "labels/returned.sql": "SELECT shop, decided AS decision_time, amount, currency, returned AS label FROM raw.orders",
    "on_demand/basket.sql": "SELECT amount / turnover AS share, region || ' ' || upper(currency) AS place FROM rows",
    "feature_store.yaml": "project: shops\nprovider: local\nonline_store: {type: sqlite}\noffline_store:\n"
    "  type: gatehouse.features.point_in_time.offline_store.AsofOfflineStore\n"
    "entity_key_serialization_version: 3\n",
}
AS_OF = datetime(2024, 1, 9, tzinfo=UTC)
SHOPS = 7


def write_repository(folder: Path, **changes: str) -> Path:
    """Write the feature repository into a folder, with other texts for some files."""
    changed = {name.replace("__", "/"): text for name, text in changes.items()}
    return write_files(folder, {"definitions.py": DEFINITIONS, **QUERIES, **changed})


def trade() -> pa.Table:
    draw = np.random.default_rng(4)
    days = [AS_OF - timedelta(days=1 + number // SHOPS) for number in range(3 * SHOPS)]
    shops = [number % SHOPS for number in range(3 * SHOPS)]
    turnover = pa.array(draw.uniform(1, 900, len(days)), mask=draw.random(len(days)) < 0.1)
    region = pa.array([None if shop == 3 else f"r{shop % 3}" for shop in shops], pa.string())
    return pa.table({"shop": shops, "day": days, "turnover": turnover, "region": region})


def orders() -> pa.Table:
    # The last shop was never seen; all orders fall into the last day, when the newest sales are known.
    draw = np.random.default_rng(5)
    count = 120
    shop = draw.integers(0, SHOPS + 1, count)
    decided = [AS_OF - timedelta(seconds=number + 1) for number in range(count)]
    amount = pa.array(draw.uniform(0, 50, count), mask=draw.random(count) < 0.1)
    currency = pa.array(draw.choice(["eur", "usd"], count), mask=draw.random(count) < 0.1)
    names = ["shop", "decided", "amount", "currency", "returned"]
    return pa.table([shop, decided, amount, currency, draw.random(count) < 0.5], names=names)


def retrieved(
    store: ArtifactStore, folder: Path, service: str, written: str = DEFINITIONS
) -> tuple[pa.Table, dict[str, Any], Files]:
    """The training set of a service with its details, and the files of the view `sales`."""
    datasets = {}
    for name, table in (("trade", trade()), ("orders", orders())):
        pq.write_table(table, folder / f"{name}.parquet")
        datasets[name] = store.publish("datasets", name, {"part-00000.parquet": folder / f"{name}.parquet"})
    details = {"as_of": AS_OF.isoformat()}
    snapshot = str(store.publish("snapshots", "shops", {"source.json": "{}"}, derived_from=datasets, details=details))
    definitions = publish_definitions(store, "shops-features", {"definitions.py": written, **QUERIES})
    computed = compute_features.function(
        ComputeRequest(snapshot=snapshot, definitions=definitions, project="shops"), store
    )
    request = RetrieveRequest(
        snapshot=snapshot,
        feature_tables=computed.feature_tables,
        definitions=definitions,
        service=service,
        as_of=AS_OF.isoformat(),
    )
    training_set = retrieve_training_set.function(request, store).training_set
    table = pq.read_table(store.path(training_set, "part-00000.parquet"))
    return table, store.manifest(training_set).details, feature_files(store, computed.feature_tables)["sales"]
