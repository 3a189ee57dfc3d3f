"""A table of sales of any size, every eight seconds one, with two views and a label of it."""

from pathlib import Path

from gatehouse.features.database import connect

ROWS_PER_FILE = 1 << 20
_DEFINITIONS = """
from datetime import timedelta
from gatehouse.features.definitions import *

shop = Entity(name="shop", type="int64")
sold = Source(table="sales", event_time="sold_at")
days = FeatureView(name="days", entities=("shop",), available=Available("event_timestamp"), ttl=timedelta(days=9),
                   window=timedelta(days=3), features={"turnover": "double", "average": "numeric"})
hours = FeatureView(name="hours", entities=("shop",), available=Available("event_timestamp"), ttl=timedelta(days=9),
                    window=timedelta(hours=1), features={"recent": "double", "number": "numeric"})
odd = LabelView(name="odd", entities=("shop",), arrives=Available("decision_time"), window=timedelta(0))
both = FeatureService(name="both", views=("days", "hours"))
"""
_VIEW = (
    "SELECT shop, sold_at AS event_timestamp, sum(amount) OVER last AS {sum}, {other}(amount) OVER last AS {name} FROM "
    "raw.sales WINDOW last AS (PARTITION BY shop ORDER BY sold_at RANGE BETWEEN INTERVAL {span} PRECEDING AND CURRENT "
    "ROW) QUALIFY row_number() OVER (PARTITION BY shop, sold_at ORDER BY amount) = 1"
)
_FILES = {
    "definitions.py": _DEFINITIONS,
    "views/days.sql": _VIEW.format(sum="turnover", other="avg", name="average", span="3 DAY"),
    "views/hours.sql": _VIEW.format(sum="recent", other="count", name="number", span="1 HOUR"),
    "known/sales.sql": "SELECT * FROM source.sales WHERE sold_at BETWEEN getvariable('since') AND getvariable('as_of')",
    "labels/odd.sql": "SELECT shop, sold_at AS decision_time, (amount * 97)::BIGINT % 2 = 1 AS label FROM raw.sales "
    "WHERE amount < 5",
    "feature_store.yaml": "project: sales\nprovider: local\nonline_store: {type: sqlite}\noffline_store:\n"
    "  type: gatehouse.features.point_in_time.offline_store.AsofOfflineStore\n"
    "entity_key_serialization_version: 3\n",
}


def write_definitions(folder: Path) -> Path:
    """Write the feature repository below a folder; returns its own."""
    for path, text in _FILES.items():
        (folder / "repository" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "repository" / path).write_text(text)
    return folder / "repository"


def write_sales(path: Path, start: int, stop: int) -> None:
    """Write the sales with the numbers from `start` to before `stop`: 5,000 shops, amounts of 0 to 103."""
    with connect() as connection:
        connection.execute(
            f"COPY (SELECT (hash(i) % 5000)::BIGINT AS shop, TIMESTAMPTZ '2024-01-01' + to_seconds(i * 8) AS sold_at, "
            f"(hash(i, 1) % 10000)::DOUBLE / 97 AS amount FROM range({start}, {stop}) AS t (i)) TO '{path}' "
            "(FORMAT parquet, COMPRESSION zstd)"
        )
