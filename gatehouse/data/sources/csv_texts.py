"""Texts of a CSV as values of the declared types: those that Arrow reads as such, but hexadecimal numbers."""

from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.data.snapshot.spec import ColumnType
from gatehouse.data.sources.rejects import Read, cast_in_pieces, mask_of, noted
from gatehouse.data.sources.times import read_times

_BLANKS = " \t"
_MOST = str(2**63 - 1)
_BELOW_MOST = "|".join(
    f"{_MOST[:at]}[0-{int(digit) - 1}]\\d{{{18 - at}}}" for at, digit in enumerate(_MOST) if digit != "0"
)
_WHOLE = rf"^(?:-?0*(?:\d{{1,18}}|{_BELOW_MOST}|{_MOST})|-0*{2**63})$"
_HEXADECIMAL = r"^[ \t]*0[xX]"
_NUMBER = r"^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$"
_NO_NUMBER = r"(?i)^[+-]?(?:inf(?:inity)?|nan(?:\([0-9a-z_]*\))?)$"
_DECIMAL_COMMA = r"^[+-]?(?:\d+|\d{1,3}(?:\.\d{3})+),\d+$"
_SINCE_1970 = r"^[12]\d{9}(?:\d{3}){0,3}(?:\.\d+)?$"
_UNITS = {10: "seconds", 13: "milliseconds", 16: "microseconds", 19: "nanoseconds"}
"""Units of numbers since 1970, by the digits that such a number has in our days."""
_TRUE, _FALSE = ("1", "true", "True", "TRUE"), ("0", "false", "False", "FALSE")


def read_texts(cells: pa.Array, kind: ColumnType, *, decimal: str, zone: str, form: str) -> Read:
    """The values that texts are.

    Args:
        cells: Texts as bytes (binary), shape (rows,), null where a text stands for a missing value.
        kind: The declared type.
        decimal: The decimal sign of doubles.
        zone: Zone of times that state none; empty refuses them.
        form: How times are written, as `read_times` has it.
    """
    texts = cells.view(pa.string())
    if kind is ColumnType.string:
        return _texts(cells, texts)
    if kind is ColumnType.bool:
        truth = pc.is_in(texts, pa.array(_TRUE))
        fits = mask_of(texts, pc.or_(truth, pc.is_in(texts, pa.array(_FALSE))))
        return Read(pc.if_else(texts.is_valid(), truth, pa.scalar(None, pa.bool_())), fits)
    if kind is ColumnType.int64:
        return _whole(texts)
    if kind is ColumnType.double:
        return _doubles(texts, decimal)
    return _times(texts, zone, form)


def _texts(cells: pa.Array, texts: pa.Array) -> Read:
    try:
        return Read(pc.cast(cells, pa.string()))
    except pa.ArrowInvalid:
        plain = pc.string_is_ascii(texts).fill_null(True)
        fits = plain.to_pylist()
        for index in pc.indices_nonzero(pc.invert(plain)).to_pylist():
            fits[index] = _is_utf8(cells[index].as_py())
        mask = pa.array(fits)
        return Read(pc.cast(pc.if_else(mask, cells, pa.scalar(None, pa.binary())), pa.string()), mask)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _whole(texts: pa.Array) -> Read:
    with suppress(pa.ArrowInvalid):
        values = cast_in_pieces(texts, pa.int64())
        # Arrow reads 0x01 as 1 and 0xffffffffffffffff as -1: keys that are written differently would become one.
        if not pc.any(pc.match_substring_regex(texts, _HEXADECIMAL), min_count=0).as_py():
            return Read(values)
    trimmed = pc.ascii_trim(texts, _BLANKS)
    fits = pc.match_substring_regex(trimmed, _WHOLE)
    return Read(pc.cast(_only(trimmed, fits), pa.int64()), mask_of(texts, fits))


def _doubles(texts: pa.Array, decimal: str) -> Read:
    trimmed = texts
    if decimal != ".":
        pointed = pc.match_substring(texts, ".")
        trimmed = pc.replace_substring(_only(texts, pc.invert(pointed)), decimal, ".")
    try:
        values = cast_in_pieces(trimmed, pa.float64())
        fits = values.is_valid()
    except pa.ArrowInvalid:
        trimmed = pc.ascii_trim(trimmed, _BLANKS)
        fits = pc.match_substring_regex(trimmed, _NUMBER)
        others = trimmed.filter(pc.invert(fits))
        fits = pc.replace_with_mask(fits, pc.invert(fits), pc.match_substring_regex(others, _NO_NUMBER))
        values = pc.cast(_only(trimmed, fits), pa.float64())
    if pc.any(pc.is_inf(values), min_count=0).as_py():
        # Arrow reads a number that no double holds as an infinity.
        told = pc.or_(pc.invert(pc.is_inf(values)), pc.match_substring_regex(trimmed, _NO_NUMBER))
        fits = pc.and_(fits, told)
        values = pc.if_else(told, values, pa.scalar(None, pa.float64()))
    mask = mask_of(texts, fits)
    if mask is None or decimal != ".":
        return Read(values, mask)
    wrong = pc.indices_nonzero(pc.invert(mask))
    commas = wrong.filter(pc.match_substring_regex(texts.take(wrong), _DECIMAL_COMMA))
    return Read(values, mask, [(commas, "with a point (or state decimal)")] if len(commas) else [])


def _times(texts: pa.Array, zone: str, form: str) -> Read:
    read = read_times(texts, zone, form)
    assert read is not None  # asked for texts only
    if read.fits is None or form:
        return read
    number = pc.match_substring_regex(texts, _SINCE_1970)
    if not pc.any(number, min_count=0).as_py():
        return read
    digits, notes = pc.utf8_length(pc.replace_substring_regex(texts, r"\..*", "")), list(read.notes)
    for count, unit in _UNITS.items():
        notes += noted(pc.and_(number, pc.equal(digits, count)), f"not {unit} since 1970 (or state times)")
    return Read(read.values, read.fits, notes)


def _only(texts: pa.Array, chosen: pa.Array) -> pa.Array:
    return pc.if_else(chosen, texts, pa.scalar(None, pa.string()))
