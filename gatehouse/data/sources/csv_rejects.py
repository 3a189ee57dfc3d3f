"""The rows of a CSV that are set aside, as a table, made a column at a time: half of a file may be rejected."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.data.sources.csv_lines import Lines
from gatehouse.data.sources.declared import HIDDEN
from gatehouse.data.sources.rejects import SCHEMA

_PLAIN = r"^[ -&(-\[\]-~]*$"
"""Texts that Python shows as they are, between single quotes."""


@dataclass(frozen=True)
class Misfits:
    """Rows that do not fit for one reason.

    Attributes:
        rows: Their indices among the lines, shape (n,).
        column: The column; empty where it is the row itself.
        reason: What was expected.
        found: What was found in each, as a message shows it; an array of n texts.
    """

    rows: np.ndarray
    column: str
    reason: str
    found: pa.Array


def set_aside(
    text: bytes, lines: Lines, misfits: Sequence[Misfits], file: str, lines_before: int, *, hidden: bool
) -> pa.Table:
    """The rows that do not fit, in order, with the columns of `rejects.SCHEMA`.

    Args:
        text: The block that they are in.
        lines: Where its rows lie.
        misfits: The rows; each is in one of them.
        file: The name of their file.
        lines_before: Lines of the file before the block.
        hidden: Whether nothing of the rows is shown.
    """
    rows = np.concatenate([each.rows for each in misfits])
    order = pa.array(np.argsort(rows, kind="stable"))
    rows = np.sort(rows)
    numbers = pc.cast(pa.array(lines.numbers[rows] + lines_before), pa.string())
    raw = pa.repeat(HIDDEN, len(rows)) if hidden else _as_text(_raw(text, lines, rows))
    repeated = (
        pa.concat_arrays([pa.repeat(getattr(each, name), len(each.rows)) for each in misfits]).take(order)
        for name in ("column", "reason")
    )
    found = pa.concat_arrays([each.found for each in misfits]).take(order)
    place = pc.binary_join_element_wise(f"{file}, line ", numbers, "")
    return pa.Table.from_arrays([place, *repeated, found, raw], schema=SCHEMA)


def shown_cells(cells: pa.Array) -> pa.Array:
    """Cells, as bytes, as Python would show their texts, shape (cells,)."""
    texts = _as_text(cells)
    plain = pc.match_substring_regex(texts, _PLAIN)
    found = pc.binary_join_element_wise("'", texts, "'", "")
    if pc.all(plain, min_count=0).as_py():
        return found
    odd = pc.invert(plain)
    shown = [repr(text) for text in texts.filter(odd).to_pylist()]
    return pc.replace_with_mask(found, odd, pa.array(shown, pa.string()))


def _as_text(cells: pa.Array) -> pa.Array:
    """Bytes as text; what is not UTF-8 is written with a backslash."""
    try:
        return pc.cast(cells, pa.string())
    except pa.ArrowInvalid:
        return pa.array([cell.decode("utf-8", "backslashreplace") for cell in cells.to_pylist()], pa.string())


def _raw(text: bytes, lines: Lines, rows: np.ndarray) -> pa.Array:
    """The bytes of some rows, without their line ends."""
    ends = pa.py_buffer(np.append(lines.starts, len(text)).astype(np.int32))
    every = pa.Array.from_buffers(pa.binary(), len(lines.starts), [None, ends, pa.py_buffer(text)])
    return pc.ascii_rtrim(every.take(pa.array(rows)).view(pa.string()), "\r\n").view(pa.binary())
