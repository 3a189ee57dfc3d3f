"""The rows of a CSV that are set aside, as a table, made a column at a time: half of a file may be rejected."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from gatehouse.components.snapshot.sources.csv_lines import Lines
from gatehouse.components.snapshot.sources.declared import HIDDEN
from gatehouse.components.snapshot.sources.rejects import SCHEMA

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


@dataclass(frozen=True)
class Row:
    """What there is to know of a row of a file, apart from its text.

    Attributes:
        file: The file's name.
        lines_before: Lines of the file before the block.
        width: How many cells it has. A row of another width does not tell which cells are hidden.
        hidden: Positions of the cells that are not shown.
        delimiter: Between cells.
    """

    file: str
    lines_before: int
    width: int
    hidden: tuple[int, ...]
    delimiter: str


def set_aside(text: bytes, lines: Lines, misfits: Sequence[Misfits], row: Row) -> pa.Table:
    """The rows that do not fit, in order, with the columns of `rejects.SCHEMA`.

    Args:
        text: The block that they are in.
        lines: Where its rows lie.
        misfits: The rows; each is in one of them.
        row: What is known of the file's rows.
    """
    rows = np.concatenate([each.rows for each in misfits])
    order = pa.array(np.argsort(rows, kind="stable"))
    rows = np.sort(rows)
    numbers = pc.cast(pa.array(lines.numbers[rows] + row.lines_before), pa.string())
    raw = _raw(text, lines, rows)
    repeated = (
        pa.concat_arrays([pa.repeat(getattr(each, name), len(each.rows)) for each in misfits]).take(order)
        for name in ("column", "reason")
    )
    found = pa.concat_arrays([each.found for each in misfits]).take(order)
    if row.hidden:
        raw = _masked(raw, pa.array(lines.widths[rows] == row.width), row)
    place = pc.binary_join_element_wise(f"{row.file}, line ", numbers, "")
    return pa.Table.from_arrays([place, *repeated, found, _as_text(raw)], schema=SCHEMA)


def shown_cells(cells: pa.Array) -> pa.Array:
    """Cells, as bytes, as Python would show their texts."""
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


def _masked(raw: pa.Array, whole: pa.Array, row: Row) -> pa.Array:
    """Rows, as bytes, without the cells that are hidden; of a row of another width, which has others, nothing is left.

    Args:
        raw: The rows.
        whole: Which of them have as many cells as the file.
        row: What is known of the file's rows.
    """
    nothing = pa.repeat(pa.scalar(HIDDEN.encode()), len(raw))
    kept = raw.filter(whole).to_pylist()
    if not kept:
        return nothing
    names, text = [str(position) for position in range(row.width)], b"\n".join(kept) + b"\n"
    table = pa.csv.read_csv(
        pa.BufferReader(text),
        read_options=pa.csv.ReadOptions(column_names=names, use_threads=False, block_size=len(text) + 1),
        parse_options=pa.csv.ParseOptions(delimiter=row.delimiter, newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.binary())),
    )
    cells = [
        pa.repeat(pa.scalar(HIDDEN.encode()), len(kept))
        if position in row.hidden
        else _in_quotes(table[name].combine_chunks(), row.delimiter)
        if b'"' in text
        else table[name].combine_chunks()
        for position, name in enumerate(names)
    ]
    return pc.replace_with_mask(nothing, whole, pc.binary_join_element_wise(*cells, row.delimiter.encode()))


def _in_quotes(cells: pa.Array, delimiter: str) -> pa.Array:
    """Cells as a CSV has them: in quotes where they hold a delimiter, a quote or a line end."""
    special = pc.match_substring_regex(cells, f'[{re.escape(delimiter)}"\\r\\n]')
    if not pc.any(special, min_count=0).as_py():
        return cells
    doubled = pc.replace_substring(cells, b'"', b'""')
    return pc.if_else(special, pc.binary_join_element_wise(b'"', doubled, b'"', b""), cells)
