"""Durations in configuration: ISO 8601 alone, as other forms mean what nobody meant: 6 is six seconds."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, TypeAdapter, ValidationInfo

_FORM = re.compile(r"P(?=\d|T\d)(\d+Y)?(\d+W)?(\d+(\.\d+)?D)?(T(?=\d)(\d+(\.\d+)?H)?(\d+(\.\d+)?M)?(\d+(\.\d+)?S)?)?")
"""Without months, which have no length. A year has 365 days: so pydantic reads and writes it."""
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
    if isinstance(value, timedelta) or (isinstance(value, str) and _FORM.fullmatch(value)):
        return value
    raise LengthError(value, name)


class LengthError(ValueError):
    """A value is no length of time in a form that is accepted.

    Attributes:
        in_python: The same words for a value in Python.
    """

    def __init__(self, value: Any, name: str) -> None:
        spans = list(dict.fromkeys(span for span in _spans(value) if span >= timedelta(0))) or [timedelta(days=1)]
        written = (repr(span).removeprefix("datetime.") for span in spans)
        self.in_python = (
            f"expected a length of time such as timedelta(days=1), found {value!r}; write "
            f"{' or '.join(f'{name}={form}' for form in written)}"
        )
        super().__init__(
            f"expected a length of time such as P1D or PT12H, found {value!r}; write "
            f"{' or '.join(f'{name}: {iso(span)}' for span in spans)}"
        )


def _spans(value: Any) -> Iterator[timedelta]:
    """The lengths that may be meant: a number without a unit may be days, hours or seconds."""
    try:
        if isinstance(value, str):
            yield _READ.validate_python(value.strip().upper())
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield from (timedelta(days=value), timedelta(hours=value), timedelta(seconds=value))
    except (ValueError, OverflowError):  # It is no length, or one that is too long.
        return


def _read(value: Any, info: ValidationInfo) -> Any:
    return in_iso(value, info.field_name or "duration")


Duration = Annotated[timedelta, BeforeValidator(_read)]
