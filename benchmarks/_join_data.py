"""Views and entity rows for benchmarks of point-in-time joins: without ties, with ties, and with late rows."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

VIEWS, KEYS, COLUMNS = 3, 3_000, 4
DATA = {"nothing late, no ties": (1, 0), "ties": (3600, 0), "late by up to 3 days": (1, 3 * 86_400)}


def make_data(
    folder: Path, size: tuple[int, int], step: int, delay: int, *, event: str = "event_timestamp", time: str = ""
) -> None:
    """Views and entity rows over a year.

    Args:
        folder: Where they are written.
        size: Number of entity rows, and of rows of each view.
        step: Seconds that times are multiples of: a coarse one makes ties.
        delay: Seconds after which a row is known, at most.
        event: Name of the time of views.
        time: Name of the time of entity rows; empty for that of views.
    """
    generator = np.random.default_rng(7)
    start, year = 1_356_998_400, int(timedelta(days=365).total_seconds())
    kind, (entity_rows, feature_rows) = pa.timestamp("us", "UTC"), size
    for view in range(VIEWS):
        seconds = start + generator.integers(0, year // step, feature_rows) * step
        micros = seconds * 1_000_000 + (np.arange(feature_rows) % 1_000_000 if step == 1 else 0)
        created = micros + generator.integers(0, delay + 1, feature_rows) * 1_000_000
        table: dict[str, Any] = {"key": generator.integers(0, KEYS, feature_rows)}
        table |= {event: pa.array(micros, kind), "created": pa.array(created, kind)}
        table |= {f"v{view}_{number}": generator.normal(size=feature_rows) for number in range(COLUMNS)}
        pq.write_table(pa.table(table), folder / f"view{view}.parquet")
    times = pa.array((start + generator.integers(0, year, entity_rows)) * 1_000_000, kind)
    rows = {"key": generator.integers(0, KEYS, entity_rows), time or event: times}
    pq.write_table(pa.table(rows), folder / "rows.parquet")
