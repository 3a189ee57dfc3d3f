"""A digest of the rows themselves: equal for equal rows, whatever wrote them and however Arrow holds them.

Of each column go in: its type, which rows are null, the lengths of its texts, and its values with zero where a row is
null. So neither the Parquet writer, nor the borders of batches, nor what lies under a null makes a difference. Values
count by their bits: 0.0 and -0.0 differ, and so do two kinds of NaN. xxHash (XXH3, 128 bits) finds what changed by
accident; against somebody who forges rows the SHA-256 of the blobs stands beside it.
"""

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from gatehouse.store.canonical import digest_of


def logical_digest(table: pa.Table) -> str:
    """The digest of a table's rows in their order, as 64 hexadecimal digits; string, bool, number and time columns."""
    columns = [[field.name, str(field.type), _column(table[field.name])] for field in table.schema]
    return digest_of({"rows": table.num_rows, "columns": columns})


def _column(column: pa.ChunkedArray) -> list[str]:
    """Digests of which rows are null, of the lengths of texts, and of the values."""
    nulls, lengths, values = xxhash.xxh3_128(), xxhash.xxh3_128(), xxhash.xxh3_128()
    for array in column.chunks:
        if column.null_count:
            nulls.update(_values(pc.cast(array.is_valid(), pa.uint8()), 1))
        if pa.types.is_boolean(array.type):
            array = pc.cast(array, pa.uint8())
        elif pa.types.is_timestamp(array.type):
            array = array.view(pa.int64())
        filled = array
        if array.null_count:
            # Zero, or the empty text. `pa.scalar` loads pandas for it, which takes longer than a digest.
            zeros = [pa.py_buffer(bytes(16))] * (2 if pa.types.is_string(array.type) else 1)
            filled = pc.fill_null(array, pa.Array.from_buffers(array.type, 1, [None, *zeros])[0])
        if not pa.types.is_string(array.type):
            values.update(_values(filled, array.type.bit_width // 8))
            continue
        lengths.update(_values(pc.binary_length(filled), 4))
        _, offsets, data = filled.buffers()
        if len(filled) and data is not None:
            ends = memoryview(offsets).cast("i")
            values.update(memoryview(data)[ends[filled.offset] : ends[filled.offset + len(filled)]])
    return [nulls.hexdigest(), lengths.hexdigest(), values.hexdigest()]


def _values(array: pa.Array, width: int) -> memoryview:
    buffer = array.buffers()[1]
    start = array.offset * width
    return memoryview(buffer)[start : start + len(array) * width] if buffer is not None else memoryview(b"")
