"""Reads JSON lines into typed rows, one object a row."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from gatehouse.data.json_values import Unfit, boolean, double, text, whole
from gatehouse.data.snapshot.spec import EPOCHS, ColumnType, TableSpec
from gatehouse.data.sources.base import Raw
from gatehouse.data.sources.declared import (
    HIDDEN,
    TYPES,
    Reject,
    check_columns,
    declare,
    reason_of,
    rejected_table,
    shown_misfit,
)
from gatehouse.errors import MisfitError

_JSON_KINDS = {bool: "bool", int: "number", float: "number", list: "list", dict: "object", type(None): "null"}
_KINDS = {list: "an array", str: "a string", int: "a number", float: "a number", bool: "a boolean", type(None): "null"}


class _DoesNotFit(Exception):
    """A row does not fit its declaration; without a `column` it is the row itself."""

    def __init__(self, reason: str, observed: str = "", column: str = "") -> None:
        super().__init__(reason)
        self.reason, self.observed, self.column = reason, observed, column


@dataclass(frozen=True)
class JsonRows:
    """Reads blocks of one file of JSON lines. A key that a row lacks is null."""

    name: str
    file: str
    spec: TableSpec
    time_zone: str = ""

    def read(self, block: bytes, lines_before: int) -> Raw:
        """The rows of a block, after so many lines of the file; errors as `read_lines`."""
        return self.read_lines(block.split(b"\n"), lambda number: f"{self.file}, line {lines_before + number + 1}")

    def read_lines(
        self,
        lines: Sequence[bytes],
        place: Callable[[int], str],
        values_of_lines: Sequence[Mapping[str, Any]] = (),
    ) -> Raw:
        """The rows of some lines, each with further values if `values_of_lines` has them; blank lines are left out.

        `place` names a line by its number; a name ends with a blank and a number. Raises MisfitError naming the first
        line that does not fit, unless the declaration sets such rows aside, and DeclarationError if the keys are not
        those declared.
        """
        values: dict[str, list[Any]] = {column: [] for column in self.spec.columns}
        delivered: dict[str, str] = {}
        numbers: list[int] = []
        rejects: list[Reject] = []
        for number, line in enumerate(lines):
            if not line.strip():
                continue
            try:
                body = _body(line)
                if values_of_lines:
                    body |= values_of_lines[number]
                delivered |= {key: "null" for key in body if key not in delivered}
                delivered |= {
                    key: _JSON_KINDS.get(type(value), "text") for key, value in body.items() if value is not None
                }
                row = self._row(body)
            except _DoesNotFit as misfit:
                reject = Reject(place(number), misfit.column, misfit.reason, misfit.observed)
                if self.spec.on_invalid == "fail":
                    raise MisfitError(
                        f"Table {self.name}: {reject}. Correct the row, or declare on_invalid: reject to set such rows "
                        "aside."
                    ) from None
                shown = HIDDEN if self.spec.sensitive else line.decode("utf-8", "backslashreplace")
                rejects.append(reject._replace(raw=shown))
                continue
            numbers.append(number)
            for column, value in row.items():
                values[column].append(value)
        kinds = {
            column: pa.string() if kind is ColumnType.timestamp else TYPES[kind]
            for column, kind in self.spec.columns.items()
        }
        pieces, places = (pa.table(values, pa.schema(kinds)),), (lambda _piece, _row, index: place(numbers[index]))
        raw = declare(pieces, self.spec, name=self.name, place=places, time_zone=self.time_zone)
        if raw.rejected is not None:
            rejects += (Reject(**rejected) for rejected in raw.rejected.to_pylist())
            rejects.sort(key=lambda reject: int(reject.place.rpartition(" ")[2]))
        # A declared key may be missing in one block; the guards see all blocks.
        check_columns(self.name, {**self.spec.columns, **delivered}, self.spec)
        return Raw(raw.table, rejected_table(rejects), delivered)

    def _row(self, body: dict[str, Any]) -> dict[str, Any]:
        """The values of a row, times as texts; _DoesNotFit names the first that is not of the declared type."""
        row: dict[str, Any] = {}
        for column, kind in self.spec.columns.items():
            value, form = body.get(column), self.spec.times.get(column, "")
            if value is None:
                row[column] = None
                continue
            try:
                match kind:
                    case ColumnType.int64:
                        row[column] = whole(value)
                    case ColumnType.double:
                        row[column] = double(value)
                    case ColumnType.bool:
                        row[column] = boolean(value)
                    case _:
                        ticks = kind is ColumnType.timestamp and form in EPOCHS and type(value) in (int, float)
                        row[column] = str(value) if ticks else text(value)
            except Unfit:
                shown = shown_misfit(value, self.spec.sensitive)
                raise _DoesNotFit(reason_of(kind, self.time_zone, form), shown, column) from None
        return row


def _body(line: bytes) -> dict[str, Any]:
    """The values of a row by key. Raises _DoesNotFit if it is no JSON object with different keys, or not in UTF-8."""
    try:
        body = json.loads(line.decode(), parse_constant=_no_constant, object_pairs_hook=_object)
    except UnicodeDecodeError:
        raise _DoesNotFit("expected JSON in UTF-8") from None
    except (ValueError, RecursionError) as error:
        # Python's own words name a setting of Python.
        why = "a number has more than 4,300 digits" if "integer string conversion" in str(error) else error
        raise _DoesNotFit("expected a JSON object", f"text that is not one ({why})") from None
    if not isinstance(body, dict):
        raise _DoesNotFit("expected a JSON object", _KINDS[type(body)])
    return body


def _no_constant(name: str) -> float:
    raise Unfit(f"{name} is not JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    body = dict(pairs)
    if len(body) < len(pairs):
        raise Unfit("a key occurs twice")
    return body
