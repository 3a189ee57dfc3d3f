"""The byte layout of Feast's online stores: entity keys, values and times, as Feast's own clients read them.

Feast itself is not imported, as that takes seconds and the image that serves models does not have it.
"""

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp

from gatehouse.errors import ConfigurationError

_STRING, _INT32, _INT64 = 2, 3, 4  # feast.value_type.ValueType
_FIELDS = {
    "string_val": (2, FieldDescriptorProto.TYPE_STRING, pa.string()),
    "int32_val": (3, FieldDescriptorProto.TYPE_INT32, pa.int32()),
    "int64_val": (4, FieldDescriptorProto.TYPE_INT64, pa.int64()),
    "double_val": (5, FieldDescriptorProto.TYPE_DOUBLE, pa.float64()),
    "float_val": (6, FieldDescriptorProto.TYPE_FLOAT, pa.float32()),
    "bool_val": (7, FieldDescriptorProto.TYPE_BOOL, pa.bool_()),
}
"""The fields of `feast.types.Value` that are used here: number, protobuf type, Arrow type."""


_FILE = FileDescriptorProto(name="value.proto", package="gatehouse", syntax="proto3")
_MESSAGE = _FILE.message_type.add(name="Value")
_MESSAGE.oneof_decl.add(name="val")
for _name, (_number, _kind, _) in _FIELDS.items():
    _label = FieldDescriptorProto.LABEL_OPTIONAL
    _MESSAGE.field.add(name=_name, number=_number, type=_kind, label=_label, oneof_index=0)
_POOL = DescriptorPool()
_POOL.Add(_FILE)
_Value: Any = GetMessageClass(_POOL.FindMessageTypeByName("gatehouse.Value"))


def field(view: str, feature: str) -> bytes:
    """Feast's name of a feature in a Redis hash: Murmur3 of `<view>:<feature>`, four bytes, little-endian."""
    return struct.pack("<I", mmh3.hash(f"{view}:{feature}", signed=False))


@lru_cache(maxsize=256)
def key_start(names: tuple[str, ...]) -> bytes:
    """The bytes with which every serialized key of an entity with these join keys begins."""
    encoded = [name.encode() for name in sorted(names)]
    return struct.pack("<I", len(names)) + b"".join(struct.pack("<II", _STRING, len(name)) + name for name in encoded)


def entity_keys(names: tuple[str, ...], rows: pa.Table) -> Iterator[bytes]:
    """The key of every row, as Feast's `serialize_entity_key` in version 3 writes it.

    Raises ConfigurationError if a key is null, or neither text nor an integer.
    """
    serialized: list[list[bytes]] = []
    for name in sorted(names):
        column, values = rows[name], rows[name].to_pylist()
        if column.null_count:
            raise ConfigurationError(f"Entity key {name}: {column.null_count} of {len(column)} values are null.")
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            texts = [text.encode() for text in values]
            serialized.append([struct.pack("<II", _STRING, len(text)) + text for text in texts])
        elif not pa.types.is_integer(column.type):
            raise ConfigurationError(f"Entity key {name}: expected text or an integer, found {column.type}.")
        elif pa.types.is_int32(column.type):
            serialized.append([struct.pack("<IIi", _INT32, 4, value) for value in values])
        else:
            serialized.append([struct.pack("<IIq", _INT64, 8, value) for value in values])
    start = key_start(names)
    for parts in zip(*serialized, strict=True):
        yield start + b"".join(parts)


def split_key(names: tuple[str, ...], key: bytes) -> tuple[tuple[str | int, ...], bytes]:
    """The inverse of `entity_keys` for one key: the values in the order of `names`, and the bytes behind the key."""
    values: dict[str, str | int] = {}
    start = len(key_start(names))
    for name in sorted(names):
        if len(key) < start + 8:
            return (), b""
        kind, length = struct.unpack_from("<II", key, start)
        value, start = key[start + 8 : start + 8 + length], start + 8 + length
        values[name] = value.decode() if kind == _STRING else int.from_bytes(value, "little", signed=True)
    return tuple(values[name] for name in names), key[start:]


def microseconds(column: pa.ChunkedArray, missing: Sequence[int] = ()) -> list[int]:
    """Times as microseconds since 1970 in UTC; where they are null, the value of `missing` in that row."""
    ticks = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64()).combine_chunks()
    if ticks.null_count:
        ticks = pc.if_else(pc.is_valid(ticks), ticks, pa.array(missing, pa.int64()))
    numbers: list[int] = np.asarray(ticks).tolist()
    return numbers


def timestamp(moment: int) -> bytes:
    """Microseconds since 1970 as a serialized `google.protobuf.Timestamp`."""
    seconds, rest = divmod(moment, 1_000_000)
    message: bytes = Timestamp(seconds=seconds, nanos=rest * 1000).SerializeToString()
    return message


def encoded(name: str, column: pa.ChunkedArray) -> list[bytes]:
    """Each value of a column as a serialized `feast.types.Value`; a null is the empty message.

    Raises ConfigurationError if Feast's layout does not support the column's type.
    """
    kind = pa.string() if pa.types.is_large_string(column.type) else column.type
    fields = [field for field, (_, _, arrow) in _FIELDS.items() if arrow == kind]
    if not fields:
        raise ConfigurationError(f"Feature {name}: Feast's layout has no {kind}. Cast it in the view's query.")
    values = column.to_pylist()
    return [b"" if value is None else _Value(**{fields[0]: value}).SerializeToString() for value in values]


def decoded(cells: Sequence[bytes | None]) -> pa.Array:
    """The values of one feature from messages that `encoded` wrote; None is null."""
    values, kind = [], pa.null()
    for cell in cells:
        if cell:
            message = _Value.FromString(cell)
            name = message.WhichOneof("val")
            values.append(getattr(message, name))
            kind = _FIELDS[name][2]
        else:
            values.append(None)
    return pa.array(values, kind)
