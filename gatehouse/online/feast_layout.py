"""The byte layout of Feast's online stores: entity keys, values and times, as Feast's own clients read them."""

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.errors import ConfigurationError

_STRING, _INT32, _INT64 = 2, 3, 4  # feast.value_type.ValueType
_LENGTH = struct.Struct("<I")
_TEXT_KEY, _INT32_KEY, _INT64_KEY = (struct.Struct(form) for form in ("<II", "<IIi", "<IIq"))
_TEXTS = {pa.string().id, pa.large_string().id}


def field(view: str, feature: str) -> bytes:
    """Feast's name of a feature in a Redis hash: Murmur3 of `<view>:<feature>`, four bytes, little-endian."""
    return _LENGTH.pack(mmh3.hash(f"{view}:{feature}", signed=False))


@lru_cache(maxsize=256)
def key_start(names: tuple[str, ...]) -> bytes:
    """The bytes with which every serialized key of an entity with these join keys begins."""
    head = [_LENGTH.pack(len(names))]
    for name in sorted(names):
        head += [_LENGTH.pack(_STRING), _LENGTH.pack(len(name.encode())), name.encode()]
    return b"".join(head)


def entity_keys(names: tuple[str, ...], rows: pa.Table) -> Iterator[bytes]:
    """The key of every row, as Feast's `serialize_entity_key` in version 3 writes it.

    Raises:
        ConfigurationError: if a key is null, or neither text nor an integer.
    """
    start = key_start(names)
    for values in zip(*(_key_values(name, rows[name]) for name in sorted(names)), strict=True):
        yield start + b"".join(values)


def key_columns(names: tuple[str, ...], keys: Sequence[bytes]) -> pa.Table:
    """The inverse of `entity_keys`: one column per join key."""
    start = len(key_start(names))
    columns: dict[str, list[Any]] = {name: [] for name in sorted(names)}
    for key in keys:
        at = start
        for values in columns.values():
            kind, length = _LENGTH.unpack_from(key, at)[0], _LENGTH.unpack_from(key, at + 4)[0]
            value, at = key[at + 8 : at + 8 + length], at + 8 + length
            values.append(value.decode() if kind == _STRING else int.from_bytes(value, "little", signed=True))
    return pa.table({name: columns[name] for name in names})


def ends_key(names: tuple[str, ...], found: bytes, project: bytes) -> bool:
    """Whether `found` is a key of an entity with these join keys, followed by `project` and nothing else."""
    at = len(key_start(names))
    for _ in names:
        if at + 8 > len(found):
            return False
        at += 8 + int(_LENGTH.unpack_from(found, at + 4)[0])
    return found[at:] == project


def _key_values(name: str, column: pa.ChunkedArray) -> list[bytes]:
    if column.null_count:
        raise ConfigurationError(f"Entity key {name}: {column.null_count} of {len(column)} values are null.")
    found = column.type
    if found.id in _TEXTS:
        texts = [text.encode() for text in column.to_pylist()]
        return [_TEXT_KEY.pack(_STRING, len(text)) + text for text in texts]
    if not pa.types.is_integer(found):
        raise ConfigurationError(f"Entity key {name}: expected text or an integer, found {found}.")
    kind, form = (_INT32, _INT32_KEY) if pa.types.is_int32(found) else (_INT64, _INT64_KEY)
    return [form.pack(kind, form.size - 8, value) for value in column.to_pylist()]


def microseconds(column: pa.ChunkedArray, missing: Any = None) -> npt.NDArray[np.int64]:
    """Times as microseconds since 1970 in UTC, shape (rows,); `missing`, of the same shape, where they are null."""
    ticks = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64()).combine_chunks()
    if missing is not None:
        ticks = pc.if_else(pc.is_valid(ticks), ticks, pa.array(missing))
    return np.asarray(ticks)


def timestamp(moment: int) -> bytes:
    """`google.protobuf.Timestamp` of microseconds: seconds as field 1, nanoseconds as field 2, zeros left out."""
    seconds, rest = divmod(moment, 1_000_000)
    found = b"\x08" + _varint(seconds) if seconds else b""
    return found + b"\x10" + _varint(rest * 1000) if rest else found


def _varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


_NUMBERS: dict[str, Callable[[Any], bytes]] = {
    "int32": lambda value: b"\x18" + _varint(value),
    "int64": lambda value: b"\x20" + _varint(value),
    "double": lambda value: b"\x29" + struct.pack("<d", value),
    "float": lambda value: b"\x35" + struct.pack("<f", value),
    "bool": lambda value: b"\x38" + (b"\x01" if value else b"\x00"),
}


def encoded(name: str, column: pa.ChunkedArray) -> list[bytes]:
    """Each value of a column, shape (rows,), as a serialized `feast.types.Value`; a null is the empty message.

    Raises:
        ConfigurationError: if Feast's layout does not support the column's type.
    """
    kind = str(column.type)
    if kind in ("string", "large_string"):
        texts = (None if text is None else text.encode() for text in column.to_pylist())
        return [b"" if text is None else b"\x12" + _varint(len(text)) + text for text in texts]
    if kind not in _NUMBERS:
        raise ConfigurationError(
            f"Feature {name}: Feast's layout has no place for {kind}; cast it in the view's query."
        )
    encode = _NUMBERS[kind]
    return [b"" if value is None else encode(value) for value in column.to_pylist()]


_TYPES = {
    0x12: pa.string(),
    0x18: pa.int32(),
    0x20: pa.int64(),
    0x29: pa.float64(),
    0x35: pa.float32(),
    0x38: pa.bool_(),
}
_FIXED = {0x29: np.dtype([("tag", "u1"), ("value", "<f8")]), 0x35: np.dtype([("tag", "u1"), ("value", "<f4")])}


def decoded(cells: Sequence[bytes | None]) -> pa.Array:
    """The values, shape (rows,), of one feature from messages that `encoded` wrote, one per row; None is null."""
    tag = next((cell[0] for cell in cells if cell), None)
    if tag is None:
        return pa.nulls(len(cells))
    layout = _FIXED.get(tag)
    if layout is None:
        return pa.array([_value(cell) if cell else None for cell in cells], _TYPES[tag])
    missing = [not cell for cell in cells]
    blank = bytes(layout.itemsize)
    values = np.frombuffer(b"".join([cell or blank for cell in cells]), layout)["value"]
    return pa.array(values, mask=np.array(missing) if any(missing) else None)


def _value(cell: bytes) -> Any:
    tag = cell[0]
    if tag == 0x12:
        length, at = _read_varint(cell, 1)
        return cell[at : at + length].decode()
    value, _ = _read_varint(cell, 1)
    if tag == 0x38:
        return bool(value)
    return value - (1 << 64) if value >> 63 else value


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
