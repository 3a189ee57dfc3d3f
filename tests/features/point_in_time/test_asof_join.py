"""The point-in-time join against a brute-force reference, and its boundaries one by one."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gatehouse.errors import ConfigurationError
from gatehouse.features.database import connect
from gatehouse.features.point_in_time import asof_join as search
from gatehouse.features.point_in_time.asof_join import MEMORY_BYTES, Joined, asof_batches, asof_join
from tests.features.point_in_time.feast_stores import Row, expected

NOON = datetime(2013, 6, 1, 12, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")


def at(minutes: int | None) -> datetime | None:
    return None if minutes is None else NOON + timedelta(minutes=minutes)


def join(
    entities: list[tuple[str | None, int | None]],
    rows: list[tuple[str | None, int | None, int | None, int | None]],
    ttl: int | None = None,
    created: bool = True,
    memory: int = MEMORY_BYTES,
) -> list[Any]:
    """Values joined to `(key, minute)` entity rows from `(key, event, created, value)` feature rows."""
    table = pa.table(
        {
            "key": pa.array([row[0] for row in rows], pa.string()),
            "event": pa.array([at(row[1]) for row in rows], TIME),
            "created": pa.array([at(row[2]) for row in rows], TIME),
            "value": pa.array([row[3] for row in rows], pa.int64()),
        }
    )
    entity_rows = pa.table(
        {
            "id": pa.array([entity[0] for entity in entities], pa.string()),
            "time": pa.array([at(entity[1]) for entity in entities], TIME),
        }
    )
    with connect() as connection:
        connection.register("rows", table)
        view = Joined(
            table="rows",
            keys={"key": "id"},
            event="event",
            created="created" if created else "",
            features={"value": "value"},
            ttl=timedelta(minutes=ttl) if ttl else None,
        )
        joined = asof_join(connection, entity_rows, "time", [view], memory)
    assert joined.select(["id", "time"]).equals(entity_rows)
    return list(joined["value"].to_pylist())


def brute_force(
    entities: list[tuple[str | None, int | None]],
    rows: list[tuple[str | None, int | None, int | None, int | None]],
    ttl: int | None,
    created: bool,
) -> list[Any]:
    table = [Row(key, event, known_at if created else None, value) for key, event, known_at, value in rows]
    return [expected(key, time, table, ttl, event_time_only=False) for key, time in entities]


keys = st.sampled_from(["a", "b", None])
minutes = st.one_of(st.none(), st.integers(0, 8), st.integers(0, 8), st.integers(0, 8))


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    entities=st.lists(st.tuples(keys, minutes), max_size=8),
    rows=st.lists(st.tuples(keys, minutes, minutes, st.one_of(st.none(), st.integers(0, 99))), max_size=14),
    ttl=st.sampled_from([None, 1, 3]),
    created=st.booleans(),
    memory=st.sampled_from([MEMORY_BYTES, 700]),
    wide=st.booleans(),
)
def test_agrees_with_brute_force(
    entities: list[tuple[str | None, int | None]],
    rows: list[tuple[str | None, int | None, int | None, int | None]],
    ttl: int | None,
    created: bool,
    memory: int,
    wide: bool,
) -> None:
    """With little memory the view is divided by key; where times leave no room for keys they are numbered first."""
    with pytest.MonkeyPatch.context() as patch:
        if wide:
            patch.setattr(search, "_CAPACITY", 1)
        assert join(entities, rows, ttl, created, memory) == brute_force(entities, rows, ttl, created)


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint8(), pa.int64(), pa.uint64()], ids=str)
@pytest.mark.parametrize("spread", [False, True])
def test_whole_numbers_match_at_both_ends_of_their_type(kind: pa.DataType, spread: bool) -> None:
    bits = kind.bit_width
    most = 2 ** (bits - (0 if pa.types.is_unsigned_integer(kind) else 1)) - 1
    keys = [most, None, most - 1, *([most - 2**bits + 1] if spread else [])]
    rows = pa.table(
        {"key": pa.array(keys, kind), "event": pa.array([NOON] * len(keys), TIME), "value": range(len(keys))}
    )
    entity_rows = pa.table(
        {"key": pa.array([*reversed(keys), most - 3], kind), "time": pa.array([NOON] * (len(keys) + 1), TIME)}
    )
    with connect() as connection:
        connection.register("rows", rows)
        view = Joined(table="rows", keys={"key": "key"}, event="event", features={"value": "value"})
        joined = asof_join(connection, entity_rows, "time", [view])["value"].to_pylist()
    assert joined == [*([3] if spread else []), 2, None, 0, None]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    entities=st.lists(st.tuples(keys, st.one_of(st.none(), st.integers(0, 2)), minutes), max_size=8),
    rows=st.lists(st.tuples(keys, st.one_of(st.none(), st.integers(0, 2)), minutes, st.integers(0, 99)), max_size=12),
    memory=st.sampled_from([MEMORY_BYTES, 700]),
)
def test_several_keys_match_together(
    entities: list[tuple[str | None, int | None, int | None]],
    rows: list[tuple[str | None, int | None, int | None, int]],
    memory: int,
) -> None:
    table = pa.table(
        {
            "name": pa.array([row[0] for row in rows], pa.string()),
            "number": pa.array([row[1] for row in rows], pa.int32()),
            "event": pa.array([at(row[2]) for row in rows], TIME),
            "value": pa.array([row[3] for row in rows], pa.int64()),
        }
    )
    entity_rows = pa.table(
        {
            "name": pa.array([entity[0] for entity in entities], pa.large_string()),
            "number": pa.array([entity[1] for entity in entities], pa.int64()),
            "time": pa.array([at(entity[2]) for entity in entities], TIME),
        }
    )
    view = Joined("rows", {"name": "name", "number": "number"}, "event", {"value": "value"})
    with connect() as connection:
        connection.register("rows", table)
        joined = asof_join(connection, entity_rows, "time", [view], memory)

    def single(name: str | None, number: int | None) -> str | None:
        return None if name is None or number is None else f"{name} {number}"

    entity_keys = [(single(*entity[:2]), entity[2]) for entity in entities]
    reference = brute_force(entity_keys, [(single(*row[:2]), row[2], None, row[3]) for row in rows], None, False)
    assert joined["value"].to_pylist() == reference


def test_a_key_of_another_type_is_an_error_that_names_it() -> None:
    with connect() as connection:
        connection.register("rows", pa.table({"key": [1], "event": pa.array([at(0)], TIME), "value": [1]}))
        for key in ("one", "1", 1.7, True):
            entity_rows = pa.table({"id": [key], "time": pa.array([at(1)], TIME)})
            with pytest.raises(ConfigurationError, match=r"^Entity key id in row 1: .*int64.*"):
                asof_join(connection, entity_rows, "time", [Joined("rows", {"key": "id"}, "event", {"value": "value"})])


def test_a_table_divided_by_key_gives_batches_in_order(tmp_path: Path) -> None:
    """Texts too, and entity rows of keys that the table lacks."""
    keys = [f"key {number % 7}" for number in range(200)]
    rows = {"key": keys, "event": pa.array([at(number) for number in range(200)], TIME), "name": keys}
    entity_rows = pa.table(
        {"id": [f"key {number % 9}" for number in range(300)], "time": pa.array([at(500)] * 300, TIME)}
    )
    with connect() as connection:
        connection.register("rows", pa.table(rows))
        view = Joined("rows", {"key": "id"}, "event", {"name": "name"})
        batches = list(asof_batches(connection, entity_rows, "time", [view], tmp_path, memory=1 << 13))
    assert len(batches) > 1 and len(list(tmp_path.glob("0/*"))) > 1
    joined = pa.concat_tables(batches)
    assert joined.select(["id", "time"]).equals(entity_rows)
    assert joined["name"].to_pylist() == [f"key {n % 9}" if n % 9 < 7 else None for n in range(300)]
