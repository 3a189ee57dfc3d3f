"""Values that were read and those that do not fit, and the rows that are set aside for them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

SCHEMA = pa.schema([(name, pa.string()) for name in ("place", "column", "reason", "found", "raw")])
"""Columns of the rows that were set aside."""
REPEATED = ["column", "reason"]
"""Those of which many rows have the same value; of the others each has its own."""
_PIECE = 4096


class Reject(NamedTuple):
    """A row that does not fit.

    Attributes:
        place: Where it stands: `events.csv, line 202`.
        column: The first column whose value does not fit; empty where it is the row itself.
        reason: What was expected. It is the same for all values that do not fit for the same reason.
        found: What was found, as a message shows it.
        raw: The row as the source gave it, without what is sensitive.
    """

    place: str
    column: str
    reason: str
    found: str
    raw: str = ""

    def __str__(self) -> str:
        """All but the row, as a message."""
        column = f"column {self.column}: " if self.column else ""
        return f"{self.place}, {column}{self.reason}{self.found and f', found {self.found}'}"


def rejected_table(rejects: Iterable[Reject]) -> pa.Table | None:
    """Rows that were set aside as a table with the columns of `SCHEMA`; None where there are none."""
    columns = list(zip(*rejects, strict=True))
    return pa.table([pa.array(column, pa.string()) for column in columns], schema=SCHEMA) if columns else None


@dataclass(frozen=True)
class Read:
    """Values of one column, converted.

    Attributes:
        values: Array of the declared type; null where the source has a null or the value does not fit.
        fits: Which values fit, as an array of bools without nulls; None where all do.
        notes: What more there is to say of some values that do not fit: their indices, and what they are.
    """

    values: pa.Array
    fits: pa.Array | None = None
    notes: list[tuple[pa.Array, str]] = field(default_factory=list)

    def misfits(self) -> dict[int, str]:
        """The note (often empty) of every value that does not fit, by index."""
        if self.fits is None:
            return {}
        told = dict.fromkeys(pc.indices_nonzero(pc.invert(self.fits)).to_pylist(), "")
        for indices, note in self.notes:
            told |= dict.fromkeys(indices.to_pylist(), note)
        return told


def noted(chosen: pa.Array, note: str) -> list[tuple[pa.Array, str]]:
    """A note on the values that a mask, shape (rows,), chooses; none where it chooses no value."""
    indices = pc.indices_nonzero(chosen.fill_null(False))
    return [(indices, note)] if len(indices) else []


def mask_of(values: pa.Array, fits: pa.Array) -> pa.Array | None:
    """`fits`, shape (rows,), where a null fits too; None where all fit."""
    held = pc.or_(fits.fill_null(False), values.is_null())
    return None if pc.all(held, min_count=0).as_py() else held


def cast_in_pieces(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Texts, shape (rows,), cast to a type; raises ArrowInvalid after the first piece in which one cannot be.

    Arrow goes on after a text that it cannot cast, and takes a hundred times as long for each.
    """
    if len(texts) <= _PIECE:
        return pc.cast(texts, kind)
    return pa.concat_arrays([pc.cast(texts.slice(at, _PIECE), kind) for at in range(0, len(texts), _PIECE)])


def by_halving(array: pa.Array, convert: Callable[[pa.Array], pa.Array], kind: pa.DataType) -> Read:
    """The values, shape (rows,), that a function converts, and those at which it raises ArrowInvalid or ValueError."""
    try:
        return Read(convert(array))
    except (pa.ArrowInvalid, ValueError):
        if len(array) == 1:
            return Read(pa.nulls(1, kind), pa.array([False]))
    half = len(array) // 2
    halves = [by_halving(piece, convert, kind) for piece in (array.slice(0, half), array.slice(half))]
    fits = [half.fits if half.fits is not None else pa.repeat(True, len(half.values)) for half in halves]
    return Read(pa.concat_arrays([half.values for half in halves]), pa.concat_arrays(fits))
