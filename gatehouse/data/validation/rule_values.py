"""What the value of a rule may be: bounds, regular expressions, SQL expressions, shares and counts."""

import math
import re
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema

_TEXT = re.compile(r"'(?:[^']|'')*'")
_VOLATILE = re.compile(
    # What DuckDB calls volatile or constant within one query only, and the words of SQL for the same; age() with one
    # argument counts from today.
    r"\b(?:now|today|random|setseed|uuid|uuidv4|uuidv7|gen_random_uuid|get_current_time(?:stamp)?|transaction_timestamp"
    r"|current_\w+|currval|nextval|setval|txid_current|in_search_path|getvariable|error|sleep_ms|stats|vector_type"
    r"|write_log)\s*\(|\bage\s*\([^,()]*(?:\([^()]*\)[^,()]*)*\)"
    r"|\bcurrent_(?:date|time|timestamp|localtime|localtimestamp)\b|\blocaltime(?:stamp)?\b",
    re.IGNORECASE,
)


def _bound(value: Any) -> int | float | datetime:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError("expected a number, or a time in ISO 8601") from None
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError("expected a finite number, or a time in ISO 8601")
    return value


# Look-around, atomic groups, conditions and references back to a group; a backslash before is an escape of its own.
_NOT_IN_RE2 = re.compile(r"(?<!\\)(?:\\\\)*(?:\(\?(?:[=!>(]|<[=!]|P=)|\\[1-9])")


def _regular(pattern: Any) -> str:
    if not isinstance(pattern, str):
        raise ValueError("expected a regular expression as text")
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    unknown = _NOT_IN_RE2.search(pattern)
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not known to RE2, which judges patterns in linear time; write it without")
    return pattern


def _repeatable(sql: Any) -> str:
    if not isinstance(sql, str) or not sql.strip():
        raise ValueError("expected a SQL expression")
    bare = _TEXT.sub("''", sql)
    if not _is_closed(bare):
        raise ValueError("expected one SQL expression, found parentheses that do not match, or a semicolon")
    found = _VOLATILE.search(bare)
    if found:
        raise ValueError(f"{found[0].strip()!r} differs from run to run; judge age by `freshness`, against as_of")
    return sql


def _is_closed(sql: str) -> bool:
    """Whether no parenthesis closes what the expression has not opened, or stays open; it is judged inside a pair."""
    depth = 0
    for letter in sql:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth < 0 or letter == ";":
            return False
    return depth == 0


_BOUND_SCHEMA = {"anyOf": [{"type": "number"}, {"type": "string", "format": "date-time"}]}
Bound = Annotated[
    int | float | datetime,
    PlainValidator(_bound),
    PlainSerializer(lambda value: value),  # by what it is: pydantic warns of a time that it tried as a number first
    WithJsonSchema(_BOUND_SCHEMA),
]
Pattern = Annotated[str, PlainValidator(_regular), WithJsonSchema({"type": "string", "format": "regex"})]
Sql = Annotated[str, PlainValidator(_repeatable), WithJsonSchema({"type": "string", "minLength": 1})]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
Values = Annotated[tuple[str | int | bool, ...], Field(min_length=1)]
Names = Annotated[tuple[str, ...], Field(min_length=1)]
