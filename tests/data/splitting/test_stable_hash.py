"""The hash agrees with its definition written out value by value, and sees through how Arrow holds a value."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.data.splitting.stable_hash import hash_column, row_hashes, seed_of

_ALL = (1 << 64) - 1
_INTEGER, _TEXT = 1, 4
HASHES = ["bb09a5c0e4c2b24e", "60eb33e98eea8b64", "25208cdb989551f5", "8dc93923529119fd"]


def _mix(word: int) -> int:
    """SplitMix64 as its authors write it."""
    word = (word + 0x9E3779B97F4A7C15) & _ALL
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _ALL
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _ALL
    return word ^ (word >> 31)


def _text(value: bytes) -> int:
    state = _mix(_TEXT)
    for place in range(0, len(value), 8):
        state = _mix(state ^ int.from_bytes(value[place : place + 8], "little"))
    return _mix(state ^ len(value))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=40), max_size=30), st.integers(0, 5))
def test_texts_hash_as_defined_wherever_a_slice_begins(values: list[str], skipped: int) -> None:
    column = pa.array(values, pa.string()).slice(skipped)
    assert hash_column(column).tolist() == [_text(value.encode()) for value in values[skipped:]]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30))
def test_integers_hash_as_defined(values: list[int]) -> None:
    digests = hash_column(pa.array(values, pa.int64())).tolist()
    assert digests == [_mix((value & _ALL) ^ _mix(_INTEGER)) for value in values]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=12), st.integers(-9, 9)), min_size=1, max_size=30), st.integers(1, 7))
def test_rows_hash_as_defined_however_they_are_batched(rows: list[tuple[str, int]], size: int) -> None:
    start = seed_of(3, "part")
    texts, numbers = pa.array([row[0] for row in rows]), pa.array([row[1] for row in rows])
    batches = [[texts.slice(at, size), numbers.slice(at, size)] for at in range(0, len(rows), size)]
    expected = []
    for text, number in rows:
        state = _mix(_mix(start) ^ _text(text.encode()))
        expected.append(_mix(state ^ _mix((number & _ALL) ^ _mix(_INTEGER))))
    assert row_hashes(batches, start, len(rows))[0].tolist() == expected


def test_known_values_stay_what_they_are() -> None:
    """A split must not move with a release: these numbers were written down once."""
    columns = [pa.array(["", "UA", "Zürich ✈", "a text of more than sixteen bytes"]), pa.array([0, 1, -1, 2**40])]
    hashes, missing = row_hashes([columns], seed_of(7, "part"), 4)
    assert [f"{value:016x}" for value in hashes.tolist()] == HASHES
    assert not missing.any()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.array([1, 200], pa.int16()), pa.array([1, 200], pa.uint64())),
        (pa.array([0.5, 2.0], pa.float32()), pa.array([0.5, 2.0], pa.float64())),
        (pa.array([0.0]), pa.array([-0.0])),
        (pa.array(["a", None, "b"]), pa.array(["a", None, "b"], pa.large_string())),
        (pa.array(["a", None, "b"]), pa.array(["a", None, "b"]).dictionary_encode()),
        (pa.array(["a", "b"], pa.string_view()), pa.array(["a", "b"])),
        (pa.array([float("nan")]), pa.array([None], pa.float64())),
        (pa.array([datetime(2024, 1, 1, tzinfo=UTC)], pa.timestamp("ns", "UTC")), pa.array([datetime(2024, 1, 1)])),
        (pa.array([datetime(2024, 1, 1)]).cast(pa.date32()), pa.array([datetime(2024, 1, 1)], pa.timestamp("s"))),
    ],
)
def test_a_value_hashes_the_same_however_it_is_held(first: Any, second: Any) -> None:
    assert hash_column(first).tolist() == hash_column(second).tolist()
