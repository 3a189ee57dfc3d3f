"""Durations in configuration: ISO 8601 alone, as other forms mean what nobody meant: 6 is six seconds."""

import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, TypeAdapter, ValidationError, ValidationInfo

_FORM = re.compile(r"P(?=\d|T\d)(\d+Y)?(\d+W)?(\d+(\.\d+)?D)?(T(?=\d)(\d+(\.\d+)?H)?(\d+(\.\d+)?M)?(\d+(\.\d+)?S)?)?")
"""Without months, which have no length. A year has 365 days: so pydantic reads and writes it."""
_READ = TypeAdapter(timedelta)
_UNITS = (("P{}D", timedelta(days=1)), ("PT{}H", timedelta(hours=1)), ("PT{}M", timedelta(minutes=1)))


def iso(span: timedelta) -> str:
    """An ISO 8601 duration in its largest whole unit, as a person writes it: P810D."""
    whole = (form.format(span // unit) for form, unit in _UNITS if span and not span % unit)
    return next(whole, f"PT{span.total_seconds():g}S")


def in_iso(value: Any, name: str) -> Any:
    """A value as it is, if it is a duration in ISO 8601, or a `timedelta`.

    Raises:
        ValueError: for another form, with the line to write instead.
    """
    if isinstance(value, timedelta) or (isinstance(value, str) and _FORM.fullmatch(value)):
        return value
    raise ValueError(
        f"expected a length of time: P1D or PT12H in YAML, timedelta(days=1) in Python, found {value!r}; write "
        f"{' or '.join(f'{name}: {form}' for form in _meant(value))}"
    )


def _meant(value: Any) -> list[str]:
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return [f"P{value:g}D", f"PT{value:g}H", f"PT{value:g}S"]
    try:
        span = _READ.validate_python(value.strip().upper() if isinstance(value, str) else None)
    except ValidationError:
        return ["P1D"]
    return [iso(span) if span > timedelta(0) else "P1D"]


def _read(value: Any, info: ValidationInfo) -> Any:
    return in_iso(value, info.field_name or "duration")


Duration = Annotated[timedelta, BeforeValidator(_read)]
