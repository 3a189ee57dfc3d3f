"""Bounds that a person would write: the extremes that were seen, moved outwards to round numbers."""

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

_INT64 = range(-(2**63), 2**63)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEARS_AHEAD = 10
_EXACT = 2**53


def round_bounds(low: float, high: float, whole: bool) -> tuple[float | None, float | None]:
    """Bounds a tenth of the span outside of `low` and `high`, rounded outwards; zero stays a bound where it is one.

    None stands for a bound that the type cannot hold. One value alone gets a fifth of its size as span.
    """
    least, greatest = Fraction(low), Fraction(high)
    span = greatest - least or abs(greatest) / 5 or Fraction(1)
    step = Fraction(10) ** ((Decimal(span.numerator) / Decimal(span.denominator)).adjusted() - 1)
    step = max(step, Fraction(1)) if whole else step
    below = math.floor((least - span / 10) / step) * step
    above = math.ceil((greatest + span / 10) / step) * step
    below = Fraction(0) if below < 0 <= least else below
    above = Fraction(0) if above > 0 >= greatest else above
    return _number(below, whole), _number(above, whole)


def _number(value: Fraction, whole: bool) -> float | None:
    if whole:
        return int(value) if int(value) in _INT64 else None
    if value.denominator == 1 and abs(value) < _EXACT:
        return int(value)
    try:
        return float(value)
    except OverflowError:
        return None


def moment(microseconds: int) -> datetime | None:
    """A time from microseconds since 1970; None where the calendar does not reach."""
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return None


def year_before(microseconds: int) -> datetime | None:
    """The start of the year before a time; None where there is none."""
    found = moment(microseconds)
    return datetime(found.year - 1, 1, 1, tzinfo=UTC) if found and found.year > 1 else None


def years_after(microseconds: int) -> datetime | None:
    """The start of a year some ten years after a time: later is no time that any clock shows."""
    found = moment(microseconds)
    year = found.year + _YEARS_AHEAD if found else 10_000
    return datetime(year, 1, 1, tzinfo=UTC) if year < 10_000 else None
