"""The digest of rows: the same for the same rows, another one for others, whatever holds them."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.data.snapshot.parts import logical_digest

ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.floats(allow_nan=True),
        st.none() | st.text(max_size=5),
        st.none() | st.booleans(),
        st.none() | st.integers(-(2**52), 2**52),
    ),
    max_size=20,
)
SCHEMA = pa.schema(
    [("i", pa.int64()), ("d", pa.float64()), ("s", pa.string()), ("b", pa.bool_()), ("t", pa.timestamp("us", "UTC"))]
)


def _table(rows: list[tuple]) -> pa.Table:  # type: ignore[type-arg]
    columns = zip(*rows, strict=True) if rows else [()] * len(SCHEMA)
    return pa.table([pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


@given(ROWS, st.integers(0, 20), st.sampled_from(["snappy", "zstd"]))
@settings(max_examples=150, deadline=None)
def test_neither_batches_nor_the_writer_matter(rows: list, cut: int, compression: str) -> None:  # type: ignore[type-arg]
    table = _table(rows)
    pieces = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    sink = io.BytesIO()
    pq.write_table(table, sink, compression=compression, use_dictionary=False, row_group_size=3)
    assert logical_digest(pieces) == logical_digest(table) == logical_digest(pq.read_table(sink))


@given(ROWS, ROWS)
@settings(max_examples=150, deadline=None)
def test_other_rows_have_another_digest(left: list, right: list) -> None:  # type: ignore[type-arg]
    same = _table(left).equals(_table(right)) or repr(left) == repr(right)
    if not any(value is not None and value != value for row in (*left, *right) for value in row):
        signs = [[np.signbit(row[1] or 0.0) for row in rows] for rows in (left, right)]
        assert (logical_digest(_table(left)) == logical_digest(_table(right))) == (same and signs[0] == signs[1])


def test_what_lies_under_a_null_does_not_matter() -> None:
    clean = pa.table({"a": pa.array([1, None], pa.int64())})
    buffers = [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([1, 99], np.int64).tobytes())]
    dirty = pa.table({"a": pa.Array.from_buffers(pa.int64(), 2, buffers)})
    assert logical_digest(clean) == logical_digest(dirty)


def test_a_null_is_not_an_empty_text_and_texts_do_not_run_together() -> None:
    tables = [pa.table({"a": pa.array(values, pa.string())}) for values in (["", "ab"], [None, "ab"], ["a", "b"])]
    assert len({logical_digest(table) for table in tables}) == 3
