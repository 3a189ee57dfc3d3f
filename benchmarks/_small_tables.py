"""Tables that are small enough for hundreds of trials: two of scikit-learn, and a part of the example's flights."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from _flights import read_flights

from gatehouse.store.manifest import Column
from gatehouse.store.store import ArtifactStore

TABLES = ("breast_cancer", "digits", "flights")
FLIGHTS = 10_000
"""Flights of the 327,346 that landed, evenly over the year. With 2,000 the noise of the score hides who is better."""
_NUMBERS, _NAMES, _LATE = ["month", "day", "hour", "distance"], ["carrier", "origin"], 15


@cache
def table(name: str) -> tuple[Any, Any, Any, Any]:
    """Train rows and labels, validation rows and labels; columns have mean 0 and deviation 1 on the train rows."""
    from sklearn.datasets import load_breast_cancer, load_digits
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler

    loaders = {"breast_cancer": load_breast_cancer, "digits": load_digits, "flights": _flight_columns}
    rows, labels = loaders[name](return_X_y=True)
    train, validation, train_labels, its_labels = train_test_split(rows, labels, test_size=0.4, random_state=0)
    scaler = StandardScaler().fit(train)
    return scaler.transform(train), train_labels, scaler.transform(validation), its_labels


def some_flights(count: int) -> pa.Table:
    """So many flights that landed, evenly over the year: what is known of them at departure, and whether late."""
    flights = read_flights()
    flights = flights.filter(pc.is_valid(flights["arr_delay"]))
    flights = flights.take(np.linspace(0, flights.num_rows - 1, count).astype(np.int64))
    late = pc.cast(pc.greater(flights["arr_delay"], _LATE), pa.int8())
    numbers = {name: pc.cast(flights[name], pa.float64()) for name in _NUMBERS}
    return pa.table({"flight": pa.array(range(count)), "label": late, **numbers, **{n: flights[n] for n in _NAMES}})


def _flight_columns(return_X_y: bool) -> tuple[Any, Any]:
    flights = some_flights(FLIGHTS)
    columns = [flights[name].to_numpy() for name in _NUMBERS]
    for name in _NAMES:
        values = flights[name].to_numpy(zero_copy_only=False)
        columns += [(values == value).astype(np.float64) for value in sorted(set(values))]
    return np.stack(columns, axis=1), flights["label"].to_numpy()


def published_flights(store: ArtifactStore, folder: Path, count: int) -> tuple[str, str]:
    """Publish so many flights as a training set with its split; returns both references."""
    rows, path = some_flights(count), folder / "part-00000.parquet"
    pq.write_table(rows, path)
    details = {"entity_keys": ["flight"], "numeric": _NUMBERS, "categorical": _NAMES, "label": "label", "versions": {}}
    columns = [Column(field.name, str(field.type), field.nullable) for field in rows.schema]
    files = {path.name: path}
    training_set = str(store.publish("training-sets", "flights", files, columns=columns, rows=count, details=details))
    ends = [0, int(count * 0.7), int(count * 0.85), count]
    parts = {f"{name}.parquet": folder / f"{name}.parquet" for name in ("train", "validation", "test")}
    for part, first, end in zip(parts.values(), ends[:-1], ends[1:], strict=True):
        pq.write_table(pa.table({"row": pa.array(range(first, end), pa.int64())}), part)
    return training_set, str(store.publish("splits", "flights", parts, derived_from={"training_set": training_set}))
