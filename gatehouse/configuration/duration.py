"""Durations in configuration, as ISO 8601: pydantic alone would read 6 as six seconds."""

from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator

_UNITS = (("P{}D", timedelta(days=1)), ("PT{}H", timedelta(hours=1)), ("PT{}M", timedelta(minutes=1)))


def iso(span: timedelta) -> str:
    """An ISO 8601 duration in its largest whole unit, as a person writes it: P810D."""
    for form, unit in _UNITS:
        if not span % unit:
            return form.format(span // unit)
    seconds, rest = divmod(span, timedelta(seconds=1))
    return f"PT{seconds}{f'.{rest.microseconds:06}'.rstrip('0').rstrip('.')}S"


def _require_iso(value: Any) -> Any:
    if isinstance(value, timedelta) or (
        isinstance(value, str) and value.startswith("P") and "M" not in value.split("T")[0]
    ):
        return value
    raise ValueError(f"expected a length of time such as P1D or PT12H, or timedelta(days=1) in Python, found {value!r}")


Duration = Annotated[timedelta, BeforeValidator(_require_iso)]
"""A duration in ISO 8601 or a `timedelta`; months have no length and are refused."""
