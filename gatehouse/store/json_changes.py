"""Differences between two nested JSON objects, by path."""

from collections.abc import Iterator
from typing import Any


def changes(first: Any, second: Any, *, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Path and both values of every difference; None for a missing value."""
    if isinstance(first, dict) and isinstance(second, dict):
        for name in sorted({*first, *second}):
            yield from changes(first.get(name), second.get(name), path=f"{path}.{name}" if path else name)
    elif first != second:
        yield path, first, second
