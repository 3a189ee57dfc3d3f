"""A small training set with its split, published into a store: what tests of training and tuning train on."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gatehouse.store.manifest import Column
from gatehouse.store.store import ArtifactStore
from gatehouse.training.job import read_part
from gatehouse.training.transformation_stage import FitRequest, fit_transformation

NUMERIC = ["distance", "wind", "delay_rate"]
CATEGORICAL = ["carrier", "origin"]
TRAIN, VALIDATION, TEST = 1003, 300, 200
FEATURE_TABLE = f"feature-tables/legs/sha256-{'7' * 64}"


def table(rows: int = TRAIN + VALIDATION + TEST, seed: int = 3) -> pa.Table:
    """Rows whose label depends on a number, a missing number and a category."""
    draw = np.random.default_rng(seed)
    distance, wind, rate = draw.normal(1000, 300, rows), draw.gamma(2.0, 5.0, rows), draw.uniform(0, 1, rows)
    carrier, origin = draw.choice(["UA", "AA", "DL"], rows), draw.choice(["EWR", "JFK"], rows)
    calm = draw.random(rows) < 0.1
    logit = (distance - 1000) / 300 + 3 * (rate - 0.5) + (carrier == "UA") - 1.0 + 0.5 * calm
    label = (draw.random(rows) < 1 / (1 + np.exp(-logit))).astype(np.int8)
    return pa.table(
        {
            "flight_id": [f"f{index}" for index in range(rows)],
            "label": label,
            "distance": distance,
            "wind": pa.array(wind, mask=calm),
            "delay_rate": rate,
            "carrier": carrier,
            "origin": origin,
        }
    )


def publish_training_set(
    store: ArtifactStore,
    rows: pa.Table,
    row_group: int | None = None,
    definitions: str = "",
    snapshot: str = "",
    **more: Any,
) -> str:
    """Publish `rows` as a training set, with `more` details; returns its reference."""
    with store.workspace() as workspace:
        path = workspace / "part-00000.parquet"
        pq.write_table(rows, path, row_group_size=row_group)
        details: dict[str, Any] = {"entity_keys": ["flight_id"], "numeric": NUMERIC, "categorical": CATEGORICAL, **more}
        columns = [Column(field.name, str(field.type), field.nullable) for field in rows.schema]
        reference = store.publish(
            "training-sets",
            "flights",
            {path.name: path},
            columns=columns,
            rows=rows.num_rows,
            derived_from={role: made for role, made in (("definitions", definitions), ("snapshot", snapshot)) if made},
            configuration={"service": "both"} if definitions else {},
            details=details | {"label": "label", "versions": {"legs": {"version": 1, "table": FEATURE_TABLE}}},
        )
    return str(reference)


def publish_split(store: ArtifactStore, training_set: str, **parts: Sequence[int]) -> str:
    """Publish a split of a training set; parts that are not given follow the sizes above. Returns its reference."""
    end = TRAIN + VALIDATION
    ranges: dict[str, Sequence[int]] = {
        "train": range(TRAIN),
        "validation": range(TRAIN, end),
        "test": range(end, end + TEST),
    } | parts
    with store.workspace() as workspace:
        files = {f"{part}.parquet": workspace / f"{part}.parquet" for part in ranges}
        for part, rows in ranges.items():
            pq.write_table(pa.table({"row": pa.array(rows, pa.int64())}), files[f"{part}.parquet"])
        return str(store.publish("splits", "flights", files, derived_from={"training_set": training_set}))


def lay_out(store: ArtifactStore) -> tuple[str, str]:
    training_set = publish_training_set(store, table())
    return training_set, publish_split(store, training_set)


def fitted(store: ArtifactStore, split: str) -> str:
    return fit_transformation(FitRequest(split=split, model_name="flights"), store).transformation


def fitted_data(store: ArtifactStore) -> tuple[str, str]:
    """Publish all that a training reads: the split of a training set, and the default transformation."""
    _, split = lay_out(store)
    return split, fitted(store, split)


def rows_of(store: ArtifactStore, split: str, name: str) -> pa.Table:
    part = read_part(store, split, name)
    return pa.table({column: part[column] for column in part.column_names})
