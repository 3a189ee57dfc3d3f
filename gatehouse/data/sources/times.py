"""Times as sources write them: texts in ISO 8601 or in a stated format, numbers since 1970, and times without a zone.

Every time becomes UTC to the microsecond, in the years 1 to 9999, or does not fit; none is rounded or moved silently.
Numbers that are declared as nanoseconds are cut to the microsecond.
"""

from datetime import UTC, datetime, timedelta
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.data.snapshot.time_formats import EPOCHS, MONTHS, format_pattern
from gatehouse.data.sources.rejects import Read, by_halving, cast_in_pieces, mask_of, noted

TIME = pa.timestamp("us", tz="UTC")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_TIME, LAST_TIME = (
    (end.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1) for end in (datetime.min, datetime.max)
)
"""The times that Python has, in microseconds since 1970."""
Numbers = np.ndarray
"""One whole number for each value, shape (n,), int64."""
_YEAR = r"(?:000[1-9]|00[1-9]\d|0[1-9]\d{2}|[1-9]\d{3})"
_LEAP = r"(?:\d{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DATE = (
    rf"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)"
    rf"|02-(?:0[1-9]|1\d|2[0-8]))|{_LEAP}-02-29)"
)
_CLOCK = r"(?:[01]\d|2[0-3])(?::[0-5]\d(?::[0-5]\d(?:\.\d{1,6})?)?)?"
_NAIVE = rf"^{_DATE}(?:[ T]{_CLOCK})?$"
_ZONED = rf"^{_DATE}[ T]{_CLOCK}(?:Z|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?)$"
_ZEROS = r"(:\d{2}\.\d{6})0+"
"""More digits than a microsecond has, which say nothing."""
_FINER = "without nanoseconds"
_NANOSECONDS = r"\d{2}:\d{2}[.,]\d{7,}"


def read_times(array: pa.Array, zone: str, form: str = "") -> Read | None:
    """Times of an array; None where its type never holds times.

    Args:
        array: Timestamps, dates (midnight), text, or, for a form since 1970, numbers; shape (rows,).
        zone: Zone of times that state none; empty refuses them.
        form: How texts and numbers write times: a unit of `EPOCHS` since 1970, a format such as `%d.%m.%Y %H:%M`, or
            empty for ISO 8601.
    """
    kind = array.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _of_times(array, zone)
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    if form in EPOCHS:
        number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        return _since_1970(array, form) if number or text else None
    if not text:
        return None
    array = pc.cast(array, pa.string())
    return _formatted(array, zone, form) if form else _iso(array, zone)


def wanted(zone: str, form: str) -> str:
    """What a time is, in words."""
    if form in EPOCHS:
        return f"{form} since 1970"
    return f"a time written as {form}" if form else "a time to the microsecond" + ("" if zone else " with its zone")


def _within(values: pa.Array, fits: pa.Array | None, notes: list[tuple[pa.Array, str]], given: pa.Array) -> Read:
    """Values as a read; what Python's calendar does not have does not fit."""
    whole = values.cast(pa.int64())
    span = pc.min_max(whole).as_py()
    if span["min"] is not None and not (span["min"] >= FIRST_TIME and span["max"] <= LAST_TIME):
        inside = pc.and_(pc.greater_equal(whole, FIRST_TIME), pc.less_equal(whole, LAST_TIME))
        notes = [*notes, *noted(pc.invert(inside), "in the years 1 to 9999")]
        values = pc.if_else(inside, values, pa.scalar(None, TIME))
        fits = mask_of(given, values.is_valid())
    return Read(values, fits, notes)


def _of_times(array: pa.Array, zone: str) -> Read:
    kind = array.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        whole = array.cast(pa.int64())
        odd = pc.not_equal(pc.multiply(pc.divide(whole, 1000), 1000), whole)
        if pc.any(odd, min_count=0).as_py():
            kept = _of_times(pc.if_else(odd, pa.scalar(None, kind), array), zone)
            return Read(kept.values, mask_of(array, kept.values.is_valid()), [*kept.notes, *noted(odd, _FINER)])
    if pa.types.is_timestamp(kind) and kind.tz:
        read = by_halving(array, lambda each: pc.cast(each, TIME), TIME)
        return _within(read.values, read.fits, [], array)
    naive = by_halving(array, lambda each: pc.cast(each, pa.timestamp("us")), pa.timestamp("us"))
    return _located(naive.values, zone, array)


def _located(naive: pa.Array, zone: str, given: pa.Array, aware: pa.Array | None = None) -> Read:
    """Times on the clocks of a zone, beside those that are known already; `given` is null where a null fits."""
    if len(naive) == naive.null_count:
        values = aware if aware is not None else pa.nulls(len(naive), TIME)
        return _within(values, mask_of(given, values.is_valid()), [], given)
    if not zone:
        values = aware if aware is not None else pa.nulls(len(naive), TIME)
        return Read(values, mask_of(given, values.is_valid()))
    try:
        values, notes = pc.assume_timezone(naive, zone, ambiguous="raise", nonexistent="raise"), []
    except (pa.ArrowInvalid, ValueError):
        first, last = (
            pc.assume_timezone(naive, zone, ambiguous=which, nonexistent=which) for which in ("earliest", "latest")
        )
        apart = pc.subtract(last.cast(pa.int64()), first.cast(pa.int64()))
        values = pc.if_else(pc.equal(apart, 0), first, pa.scalar(None, first.type))
        # Of a time in a gap Arrow gives the last one before it and the first one after it.
        notes = noted(pc.equal(apart, 1), f"not one that clocks in {zone} skip")
        notes += noted(pc.greater(apart, 1), f"not one that clocks in {zone} show twice")
    values = pc.cast(values, TIME)
    values = values if aware is None else pc.coalesce(aware, values)
    return _within(values, mask_of(given, values.is_valid()), notes, given)


def _iso(array: pa.Array, zone: str) -> Read:
    try:
        if zone:
            return _located(cast_in_pieces(array, pa.timestamp("us")), zone, array)
        return _within(cast_in_pieces(array, TIME), None, [], array)
    except pa.ArrowInvalid:
        nothing = pa.scalar(None, pa.string())
        array = pc.replace_substring_regex(array, _ZEROS, r"\1")
        aware = pc.cast(pc.if_else(pc.match_substring_regex(array, _ZONED), array, nothing), TIME)
        if zone:
            clocks = pc.if_else(pc.match_substring_regex(array, _NAIVE), array, nothing)
            read = _located(pc.cast(clocks, pa.timestamp("us")), zone, array, aware)
        else:
            read = _within(aware, mask_of(array, aware.is_valid()), [], array)
        finer = pc.and_(read.values.is_null(), pc.match_substring_regex(array, _NANOSECONDS))
        return Read(read.values, read.fits, [*read.notes, *noted(finer, _FINER)])


def _since_1970(array: pa.Array, form: str) -> Read:
    digits = EPOCHS[form]
    if pa.types.is_floating(array.type):
        scaled = pc.round(pc.multiply(pc.cast(array, pa.float64()), 10.0**digits))
        sane = pc.less(pc.abs(scaled), 2.0**62)
        whole = pc.cast(pc.if_else(sane, scaled, pa.scalar(None, pa.float64())), pa.int64())
    elif pa.types.is_integer(array.type) or pa.types.is_decimal(array.type):
        whole = by_halving(array, partial(_scaled, digits=digits), pa.int64()).values
    else:
        fraction = rf"(?:\.\d{{1,{digits}}})?" if digits > 0 else ""
        fits = pc.match_substring_regex(array, rf"^-?\d{{1,{18 - min(digits, 0)}}}{fraction}$")
        whole = _scaled(pc.cast(pc.if_else(fits, array, pa.scalar(None, pa.string())), pa.decimal128(38, 6)), digits)
    values = whole.cast(pa.timestamp("us")).cast(TIME)
    return _within(values, mask_of(array, values.is_valid()), [], array)


def _scaled(numbers: pa.Array, digits: int) -> pa.Array:
    """Whole numbers times a power of ten, cut to int64; null where that is beyond every calendar."""
    factor, exact = pa.scalar(10 ** abs(digits), pa.decimal256(8, 0)), pc.cast(numbers, pa.decimal256(40, 6))
    exact = pc.multiply(exact, factor) if digits >= 0 else pc.floor(pc.divide(exact, factor))
    sane = pc.and_(pc.greater(exact, pa.scalar(-(2**62))), pc.less(exact, pa.scalar(2**62)))
    return pc.cast(pc.if_else(sane, exact, pa.scalar(None, exact.type)), pa.int64())


def _formatted(array: pa.Array, zone: str, form: str) -> Read:
    parts = pc.extract_regex(array, format_pattern(form))
    fits = parts.is_valid()
    texts = {field.name: parts.field(index) for index, field in enumerate(parts.type)}

    def number(name: str, default: int = 0) -> Numbers:
        if name not in texts:
            return np.full(len(array), default)
        digits = pc.if_else(fits, texts[name], str(default)).fill_null(str(default))
        found: Numbers = pc.cast(digits, pa.int64()).to_numpy(zero_copy_only=False)
        return found

    year = number("Y", 1970) if "Y" in texts else _century(number("y", 70))
    month = number("m", 1) if "m" in texts else _month(texts["b"], fits)
    hour = number("H") if "I" not in texts else number("I", 12) % 12 + 12 * _is_evening(texts["p"])
    day, minute, second = number("d", 1), number("M"), number("S")
    months = ((year - 1970) * 12 + np.clip(month, 1, 12) - 1).astype("M8[M]")
    first, after = months.astype("M8[D]"), (months + 1).astype("M8[D]")
    real = (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= (after - first).astype(int))
    real &= (hour <= 23) & (minute <= 59) & (second <= 59)
    if "I" in texts:
        real &= (number("I", 12) >= 1) & (number("I", 12) <= 12)
    fraction = _microseconds(texts["f"], fits) if "f" in texts else 0
    seconds = (first.astype(np.int64) + day - 1) * 86_400 + hour * 3600 + minute * 60 + second
    held = pc.and_(fits, pa.array(real))
    naive = pc.if_else(held, pa.array(seconds * 1_000_000 + fraction), pa.scalar(None, pa.int64()))
    if "z" not in texts:
        return _located(naive.cast(pa.timestamp("us")), zone, array)
    offset, sane = _offset(texts["z"], fits)
    values = pc.if_else(sane, pc.subtract(naive, offset), pa.scalar(None, pa.int64()))
    values = values.cast(pa.timestamp("us")).cast(TIME)
    return _within(values, mask_of(array, values.is_valid()), [], array)


def _century(year: Numbers) -> Numbers:
    """Years of two digits as POSIX reads them: 69 to 99 are of the last century."""
    return np.where(year >= 69, 1900 + year, 2000 + year)


def _month(names: pa.Array, fits: pa.Array) -> Numbers:
    short = pc.utf8_slice_codeunits(pc.ascii_lower(pc.if_else(fits, names, "jan")), 0, 3)
    found: Numbers = pc.add(pc.index_in(short, pa.array(MONTHS)).fill_null(0), 1).to_numpy(zero_copy_only=False)
    return found.astype(np.int64)


def _is_evening(halves: pa.Array) -> Numbers:
    evening: Numbers = pc.equal(pc.ascii_lower(halves), "p").fill_null(False).to_numpy(zero_copy_only=False)
    return evening.astype(np.int64)


def _microseconds(digits: pa.Array, fits: pa.Array) -> Numbers:
    padded = pc.ascii_rpad(pc.if_else(fits, digits, "0").fill_null("0"), 6, "0")
    found: Numbers = pc.cast(padded, pa.int64()).to_numpy(zero_copy_only=False)
    return found


def _offset(texts: pa.Array, fits: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Microseconds east of Greenwich, and whether a clock may be so far off."""
    plain = pc.replace_substring(pc.if_else(fits, texts, "Z").fill_null("Z"), ":", "")
    plain = pc.if_else(pc.equal(plain, "Z"), "+0000", plain)
    hours, minutes = (pc.cast(pc.utf8_slice_codeunits(plain, at, at + 2), pa.int64()) for at in (1, 3))
    sign = pc.if_else(pc.starts_with(plain, "-"), -1, 1)
    offset = pc.multiply(pc.multiply(pc.add(pc.multiply(hours, 60), minutes), sign), 60_000_000)
    return offset, pc.and_(pc.less(hours, 24), pc.less(minutes, 60))
