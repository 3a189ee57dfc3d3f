"""Values out of messages: a message is a JSON object, or named fields of text.

A converter takes one value and `typed`: whether JSON gave it its type, or it is text.
"""

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

_MORE_THAN_MICROSECONDS = re.compile(r"[.,]\d{6}\d*[1-9]")
_WHOLE = re.compile(r"-?(0|[1-9]\d{0,19})")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|NaN|[+-]?Infinity")
_KINDS = {list: "an array", str: "a string", int: "a number", float: "a number", bool: "a boolean", type(None): "null"}
_EXACT = 2**53
"""Up to here every whole number is a double of its own."""


class DoesNotFit(Exception):
    """A message does not fit its declaration. Its text becomes data, so it is not called an error.

    `column` is the first whose value does not fit; empty if it is the message itself.
    """

    def __init__(self, reason: str, column: str = "", observed: str = "") -> None:
        super().__init__(f"{column and f'column {column}: '}{reason}{observed and f', found {observed}'}")
        self.reason, self.column, self.observed = reason, column, observed


class Unfit(ValueError):
    """A value is not what was expected, which its text says in the words that tables of rejected rows hold."""


def body_of(payload: bytes | Mapping[str, bytes] | None) -> Mapping[str, Any]:
    """The values of a message by name: of a JSON object as bytes, or of fields by name, each the bytes of a text.

    Raises DoesNotFit if there is no payload, or it is no JSON object with different keys, or not in UTF-8.
    """
    if payload is None:
        raise DoesNotFit("the message has no value")
    try:
        if not isinstance(payload, bytes):
            return {name: value.decode() for name, value in payload.items()}
        body = json.loads(payload.decode(), parse_constant=_no_constant, object_pairs_hook=_object)
    except UnicodeDecodeError:
        raise DoesNotFit(f"expected {'JSON' if isinstance(payload, bytes) else 'text'} in UTF-8") from None
    except (ValueError, RecursionError) as error:
        # Python's own words name a setting of Python.
        why = "a number has more than 4,300 digits" if "integer string conversion" in str(error) else error
        raise DoesNotFit("expected a JSON object", observed=f"text that is not one ({why})") from None
    if not isinstance(body, dict):
        raise DoesNotFit("expected a JSON object", observed=_KINDS[type(body)])
    return body


def _no_constant(name: str) -> float:
    raise Unfit(f"{name} is not JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    body = dict(pairs)
    if len(body) < len(pairs):
        raise Unfit("a key occurs twice")
    return body


def whole(value: Any, typed: bool, bits: int = 64, signed: bool = True) -> int:
    """A whole number of `bits` bits, also one that JSON writes as 1.0 or 1e3. Raises Unfit."""
    if not typed and _WHOLE.fullmatch(value):
        value = int(value)
    if typed and isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        value = int(value)
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if signed else (0, 2**bits)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value < high:
        raise Unfit(f"a whole number of {bits} bits")
    return value


def double(value: Any, typed: bool) -> float:
    """A number that a double holds without rounding a whole one; as text also NaN and infinities. Raises Unfit."""
    if not typed and _NUMBER.fullmatch(value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unfit("a number")
    try:
        number = float(value)
        if typed and (not math.isfinite(number) or (isinstance(value, int) and int(number) != value)):
            raise ValueError
    except (ValueError, OverflowError):
        raise Unfit("a number that a double holds") from None
    return number


def text(value: Any) -> str:
    """Text without half of a pair of surrogates. Raises Unfit."""
    if not isinstance(value, str):
        raise Unfit("text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Unfit("text in UTF-8") from None
    return value


def boolean(value: Any, typed: bool) -> bool:
    """True or false; as text also 1 or 0. Raises Unfit."""
    if not typed:
        value = {"true": True, "false": False, "1": True, "0": False}.get(value)
    if not isinstance(value, bool):
        raise Unfit("true or false")
    return value


def moment(value: Any, zone: ZoneInfo | None = None) -> datetime:
    """A time in ISO 8601, to the microsecond at most, converted to UTC.

    Raises Unfit if it is no such time; if it has no zone and `zone` is not given; or if clocks in `zone` showed this
    time twice or never.
    """
    if not isinstance(value, str) or _MORE_THAN_MICROSECONDS.search(value):
        raise Unfit("a time in ISO 8601, to the microsecond")
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise Unfit("a time in ISO 8601") from None
    if time.tzinfo is None:
        if zone is None:
            raise Unfit("a time in ISO 8601 with its zone")
        time = time.replace(tzinfo=zone)
        if time.utcoffset() != time.replace(fold=1).utcoffset():
            raise Unfit(f"a time that {zone} has once")
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise Unfit("a time in ISO 8601 that is in the years 1 to 9999 in UTC") from None
