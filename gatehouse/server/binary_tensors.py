"""KServe's binary extension: tensors as bytes after the JSON of a request or answer, in the order of their names.

Numbers are little-endian, bools are one byte, and a text is its length in four bytes followed by its UTF-8. NaN is a
missing value, because bytes have no null.
"""

import json
import struct
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from gatehouse.errors import ConfigurationError

HEADER = "Inference-Header-Content-Length"
SIZE = "binary_data_size"
_TYPES = {"BOOL": "?", "FP32": "<f4", "FP64": "<f8"}
_TYPES |= {f"{sign}INT{8 * size}": f"<{sign.lower() or 'i'}{size}" for sign in ("", "U") for size in (1, 2, 4, 8)}


def unpacked(body: bytes, length: str | None) -> Any:
    """A request with its binary tensors converted to JSON values.

    Args:
        body: The request body.
        length: Number of bytes of its JSON, from the header; None if all of it is JSON.

    Raises:
        ConfigurationError: if the JSON cannot be read, or the number of bytes after it is wrong.
    """
    if length is not None and not (length.isdecimal() and int(length) <= len(body)):
        raise ConfigurationError(f"{HEADER}: expected at most the {len(body)} bytes of the body, found {length}.")
    at = len(body) if length is None else int(length)
    try:
        asked = json.loads(body[:at])
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"body: expected JSON: {error}.") from error
    tensors = asked.get("inputs") if isinstance(asked, dict) else None
    for tensor in tensors if isinstance(tensors, list) else []:
        size = _size(tensor)
        if size is not None:
            tensor["data"] = _values(tensor, body[at : at + size], size)
            at += size
    if at != len(body):
        raise ConfigurationError(f"body: expected {at} bytes, as {SIZE} of the inputs say, found {len(body)}.")
    return asked


def packed(answer: dict[str, Any], names: Collection[str]) -> tuple[bytes, int]:
    """The body of an answer and the length of its JSON: the outputs in `names` follow the JSON as bytes."""
    blobs = []
    outputs = []
    for output in answer["outputs"]:
        if output["name"] in names:
            values, output = output["data"], {name: value for name, value in output.items() if name != "data"}
            blobs.append(_bytes(output["datatype"], values))
            output["parameters"] = {SIZE: len(blobs[-1])}
        outputs.append(output)
    head = json.dumps(answer | {"outputs": outputs}).encode()
    return b"".join([head, *blobs]), len(head)


def _size(tensor: Any) -> int | None:
    parameters = tensor.get("parameters") if isinstance(tensor, dict) else None
    size = parameters.get(SIZE) if isinstance(parameters, dict) else None
    if size is None:
        return None
    if "data" in tensor or not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise ConfigurationError(f"input {tensor.get('name')}: expected data, or {SIZE} as a number of bytes alone.")
    return size


def _values(tensor: dict[str, Any], data: bytes, size: int) -> list[Any]:
    name, datatype = tensor.get("name"), tensor.get("datatype")
    if len(data) < size:
        raise ConfigurationError(f"input {name}: expected {size} bytes, found {len(data)}.")
    try:
        if datatype == "BYTES":
            return list(_texts(data))
        values = np.frombuffer(data, _TYPES[str(datatype)])
        if datatype == "BOOL" and max(data, default=0) > 1:
            raise ValueError("a byte of a bool is 0 or 1")
    except (ValueError, struct.error) as error:
        raise ConfigurationError(f"input {name}: expected {datatype} values as bytes: {error}.") from error
    except KeyError:
        raise ConfigurationError(f"input {name}: expected a datatype of {', '.join(_TYPES)}, BYTES.") from None
    return [None if value != value else value for value in values.tolist()]


def _texts(data: bytes) -> Iterator[str]:
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at)
        text = data[at + 4 : at + 4 + length]
        if len(text) < length:
            raise ValueError(f"a text of {length} bytes has {len(text)}")
        yield text.decode()
        at += 4 + length


def _bytes(datatype: str, values: list[Any]) -> bytes:
    if datatype != "BYTES":
        return np.array(values, _TYPES[datatype]).tobytes()
    texts = [str(value).encode() for value in values]
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)
