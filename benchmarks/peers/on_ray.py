"""The join by Feast's Ray offline store, or the features by Ray Data; prints wall and CPU seconds of all processes."""

import json
import sys
import time
import warnings
from datetime import timedelta
from pathlib import Path

import pandas as pd
import psutil
import pyarrow.parquet as pq
import ray

CPUS, PARTITIONS = 2, 16


def main() -> None:
    """Arguments: `join` or `features`, and the folder that ray_peers.py made."""
    warnings.simplefilter("ignore")
    work, folder = sys.argv[1], Path(sys.argv[2])
    ray.init(num_cpus=CPUS, include_dashboard=False, log_to_driver=False, logging_level=40)
    ray.data.DataContext.get_current().enable_progress_bars = False
    wall, cpu = time.perf_counter(), _processor()
    {"join": _join, "features": _features}[work](folder)
    print(json.dumps({"wall": time.perf_counter() - wall, "cpu": _processor() - cpu}))


def _processor() -> float:
    """Seconds of a processor that this process and all of Ray's have taken; workers that ended are their parents'."""
    this = psutil.Process()
    return sum(sum(process.cpu_times()[:4]) for process in [this, *this.children(recursive=True)])


def _features(folder: Path) -> None:
    """As Ray's documentation groups: by key, and one call of pandas for each group."""

    def last(sales: pd.DataFrame) -> pd.DataFrame:
        sales = sales.sort_values("sold_at").set_index("sold_at")
        days, hours = (sales["amount"].rolling(span, closed="both") for span in ("3D", "1h"))
        computed = {"turnover": days.sum(), "average": days.mean(), "recent": hours.sum(), "number": hours.count()}
        return sales.assign(**computed).drop(columns="amount").reset_index()

    sales = ray.data.read_parquet(str(folder / "sales"))
    sales.groupby("shop", num_partitions=PARTITIONS).map_groups(last, batch_format="pandas").write_parquet(
        str(folder / "by_hand")
    )


def _join(folder: Path) -> None:
    from feast import Entity, FeatureStore, FeatureView, Field, FileSource, RepoConfig
    from feast.types import Float64
    from feast.value_type import ValueType

    store = {"type": "ray", "storage_path": str(folder / "ray"), "ray_conf": {"num_cpus": CPUS}}
    registry = str(folder / "registry.db")
    config = RepoConfig(
        project="sales",
        registry=registry,
        provider="local",
        offline_store=store,
        online_store=None,
        entity_key_serialization_version=3,
    )
    feast, shop = FeatureStore(config=config), Entity(name="shop", join_keys=["shop"], value_type=ValueType.INT64)
    features = {"days": ("turnover", "average"), "hours": ("recent", "number")}
    views = [
        FeatureView(
            name=name,
            entities=[shop],
            ttl=timedelta(days=9),
            schema=[Field(name=feature, dtype=Float64) for feature in own],
            source=FileSource(path=str(folder / name), timestamp_field="event_timestamp"),
        )
        for name, own in features.items()
    ]
    feast.apply([shop, *views])
    names = [f"{view}:{feature}" for view, own in features.items() for feature in own]
    rows = pq.read_table(folder / "rows.parquet").to_pandas()
    joined = feast.get_historical_features(rows, names).to_arrow()
    pq.write_table(joined, folder / "joined.parquet")


if __name__ == "__main__":
    main()
