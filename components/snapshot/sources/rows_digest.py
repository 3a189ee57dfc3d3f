"""A digest of rows that depends on their values and order alone, not on how they come in pieces."""

import hashlib
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.components.artifacts.canonical import digest_of


class RowsDigest:
    """SHA-256 over each column's validity, lengths and values, added piece by piece."""

    def __init__(self) -> None:
        self.rows = 0
        self._columns: dict[str, list[Any]] = {}

    def add(self, rows: pa.Table) -> None:
        """Add the next rows; columns and types are the same in every piece."""
        self.rows += rows.num_rows
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            hashes = self._columns.setdefault(f"{name}:{column.type}", [hashlib.sha256() for _ in range(3)])
            for array in column.chunks:
                hashes[0].update(_values(pc.cast(array.is_valid(), pa.uint8())))
                if pa.types.is_string(array.type):
                    filled = pc.fill_null(array, "")
                    hashes[1].update(_values(pc.binary_length(filled)))
                    hashes[2].update(b"".join(filled.cast(pa.binary()).to_pylist()))
                else:
                    hashes[2].update(_values(_fixed_width(array)))

    def hexdigest(self) -> str:
        """The digest of what was added, as 64 hexadecimal digits."""
        columns = {name: [one.hexdigest() for one in hashes] for name, hashes in self._columns.items()}
        return digest_of({"rows": self.rows, "columns": columns})


def _fixed_width(array: pa.Array) -> pa.Array:
    if pa.types.is_boolean(array.type):
        array = pc.cast(array, pa.uint8())
    elif pa.types.is_timestamp(array.type):
        array = pc.cast(array, pa.int64())
    return pc.fill_null(array, pa.scalar(0, array.type))


def _values(array: pa.Array) -> bytes:
    # A slice keeps its parent's buffer; concatenating copies what belongs to it.
    buffer = pa.concat_arrays([array, array.slice(0, 0)]).buffers()[1]
    width = array.type.bit_width // 8
    return bytes(buffer)[: len(array) * width] if buffer is not None else b""
