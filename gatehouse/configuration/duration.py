"""Durations in configuration: ISO 8601 alone, as other forms mean what nobody meant: 6 is six seconds."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, TypeAdapter, ValidationInfo

_FORM = re.compile(
    r"P(?=\d|T\d)(\d+Y)?(\d+W)?(\d+(\.\d+)?D)?(T(?=\d)(\d+(\.\d+)?H)?(\d+(\.\d+)?M)?(\d+(\.\d+)?S)?)?", re.ASCII
)
"""Without months, which have no length. A year has 365 days: so pydantic reads and writes it."""
_BROKEN = re.compile(r"\.\d+\D+\d")
"""A fraction before another number, which ISO 8601 does not have."""
_SPOKEN = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Z]+)[\s,]*")
_SPOKEN_UNITS = {
    "Y YEAR YEARS": timedelta(days=365),
    "MONTH MONTHS": timedelta(days=30),
    "W WEEK WEEKS": timedelta(weeks=1),
    "D DAY DAYS": timedelta(days=1),
    "H HR HRS HOUR HOURS": timedelta(hours=1),
    "M MIN MINS MINUTE MINUTES": timedelta(minutes=1),
    "S SEC SECS SECOND SECONDS": timedelta(seconds=1),
}
_SPOKEN_LENGTHS = {name: length for names, length in _SPOKEN_UNITS.items() for name in names.split()}
"""Units as people write them, in capitals."""
_READ = TypeAdapter(timedelta)
_UNITS = (("P{}D", timedelta(days=1)), ("PT{}H", timedelta(hours=1)), ("PT{}M", timedelta(minutes=1)))


def iso(span: timedelta) -> str:
    """An ISO 8601 duration in its largest whole unit, as a person writes it: P810D."""
    whole = (form.format(span // unit) for form, unit in _UNITS if not span % unit)
    seconds, rest = divmod(span, timedelta(seconds=1))
    return next(whole, f"PT{seconds}{f'.{rest.microseconds:06}'.rstrip('0').rstrip('.')}S")


def in_iso(value: Any, name: str) -> Any:
    """A value as it is, if it is a duration in ISO 8601, or a `timedelta`.

    Raises:
        LengthError: for another form, with the line to write instead.
    """
    if isinstance(value, timedelta) or (isinstance(value, str) and not _why_not(value)):
        return value
    raise LengthError(value, name)


_OTHER_FORM = "another form"
_TOO_LONG = ", which is longer than 999,999,999 days"


def _why_not(value: Any) -> str:
    """Why a value is no duration in ISO 8601; empty if it is one."""
    if not isinstance(value, str) or not _FORM.fullmatch(value):
        return _OTHER_FORM
    if _BROKEN.search(value):
        return ", of which only the last number may have a fraction"
    try:
        _READ.validate_python(value)
    except ValueError:
        return _TOO_LONG
    return ""


class LengthError(ValueError):
    """A value is no length of time in a form that is accepted.

    Attributes:
        in_python: The same words for a value in Python.
    """

    def __init__(self, value: Any, name: str) -> None:
        found = f"found {value!r}{_why_not(value).removeprefix(_OTHER_FORM)}"
        spans = list(dict.fromkeys(span for span in _spans(value) if span >= timedelta(0))) or [timedelta(days=1)]
        written = " or ".join(f"{name}={repr(span).removeprefix('datetime.')}" for span in spans)
        lines = " or ".join(f"{name}: {iso(span)}" for span in spans)
        if found.endswith(_TOO_LONG):
            written = lines = "a shorter one"
        self.in_python = f"expected a length of time such as timedelta(days=1), {found}; write {written}"
        super().__init__(f"expected a length of time such as P1D or PT12H, {found}; write {lines}")


def _spans(value: Any) -> Iterator[timedelta]:
    """The lengths that may be meant: a number without a unit may be days, hours or seconds."""
    try:
        if isinstance(value, str):
            yield abs(_read_as_meant(value.strip().upper()))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield from (timedelta(days=value), timedelta(hours=value), timedelta(seconds=value))
    except (ValueError, LookupError, OverflowError):  # It is no length, or one that is too long.
        return


def _read_as_meant(text: str) -> timedelta:
    """A length as pydantic reads it, or of numbers with units, such as 6H, 1 DAY or PT1.5M30S."""
    try:
        return _READ.validate_python(text)
    except ValueError:
        numbers = text.replace("P", "", 1).replace("T", "", 1) if _BROKEN.search(text) or text[:1] == "P" else text
        if not numbers or _SPOKEN.sub("", numbers):
            raise
        return sum((float(number) * _SPOKEN_LENGTHS[unit] for number, unit in _SPOKEN.findall(numbers)), timedelta())


def _read(value: Any, info: ValidationInfo) -> Any:
    return in_iso(value, info.field_name or "duration")


Duration = Annotated[timedelta, BeforeValidator(_read)]
