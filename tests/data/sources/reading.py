"""What tests of sources read of one, without a snapshot, and the rows of lakehouses."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from gatehouse.data.sources.base import EarlierPart, Part
from gatehouse.data.sources.catalog import _READERS, SourceSpec

COLUMNS = {"id": "int64", "item": "string", "at": "timestamp"}
AT = datetime(2024, 3, 1, tzinfo=UTC)


def rows(start: int, stop: int) -> pa.Table:
    """Rows with the columns of `COLUMNS`."""
    return pa.table(
        {
            "id": pa.array(range(start, stop), pa.int64()),
            "item": pa.array(["té"] * (stop - start), pa.string()),
            "at": pa.array([AT] * (stop - start), pa.timestamp("us", tz="UTC")),
        }
    )


def read(spec: SourceSpec, earlier_parts: tuple[EarlierPart, ...] = ()) -> tuple[dict[str, Any], list[Part], pa.Table]:
    """State, parts and rows of the table `orders`."""
    with _READERS[type(spec)](spec) as reader:
        state = dict(reader.state())
        parts = list(reader.parts("orders", earlier_parts))
        tables = [part.read().table for part in parts]
    return state, parts, pa.concat_tables(tables) if tables else pa.table({"id": []})


def take(
    spec: SourceSpec, earlier_parts: tuple[EarlierPart, ...] = (), rows: dict[str, pa.Table] | None = None
) -> tuple[dict[str, Any], tuple[EarlierPart, ...], dict[str, pa.Table]]:
    """What a snapshot does: read the parts that the earlier one does not hold, and keep all of them."""
    tables = dict(rows or {})
    listed: list[Part] = []
    with _READERS[type(spec)](spec) as reader:
        state = dict(reader.state())
        for part in reader.parts("orders", earlier_parts):
            if part.fingerprint not in tables:
                tables[part.fingerprint] = part.read().table
            listed.append(part)
    parts = tuple(EarlierPart(part.fingerprint, part.position) for part in listed)
    return state, parts, {part.fingerprint: tables[part.fingerprint] for part in parts}


def ids(rows: dict[str, pa.Table]) -> list[int]:
    """In the order of the parts."""
    return [value for table in rows.values() for value in table["id"].to_pylist()]
