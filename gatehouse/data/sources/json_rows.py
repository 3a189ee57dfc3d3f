"""Reads JSON lines into typed rows, one object a row."""

import json
from collections.abc import Callable, Mapping, Sequence
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


def read_json_lines(
    lines: Sequence[bytes],
    spec: TableSpec,
    *,
    name: str,
    place: Callable[[int], str],
    time_zone: str = "",
    values_of_lines: Sequence[Mapping[str, Any]] = (),
) -> Raw:
    """The rows of some lines, each with further values if `values_of_lines` has them; blank lines are left out.

    A key that a row lacks is null. `place` names a line of the table `name` by its number. Raises MisfitError naming
    the first line that does not fit, unless the declaration sets such rows aside, and DeclarationError if the keys are
    not those declared.
    """
    rows: dict[int, dict[str, Any]] = {}
    rejects: dict[int, Reject] = {}
    delivered: dict[str, str] = {}
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            body = _body(line) | dict(values_of_lines[number] if values_of_lines else {})
            for key, value in body.items():
                if value is not None or key not in delivered:
                    delivered[key] = _JSON_KINDS.get(type(value), "text")
            rows[number] = _row(body, spec, time_zone)
        except _DoesNotFit as misfit:
            reject = Reject(place(number), misfit.column, misfit.reason, misfit.observed)
            if spec.on_invalid == "fail":
                raise MisfitError(
                    f"Table {name}: {reject}. Correct the row, or declare on_invalid: reject to set such rows aside."
                ) from None
            shown = HIDDEN if spec.sensitive else line.decode("utf-8", "backslashreplace")
            rejects[number] = reject._replace(raw=shown)
    kinds = {
        column: pa.string() if kind is ColumnType.timestamp else TYPES[kind] for column, kind in spec.columns.items()
    }
    numbers, places = list(rows), dict[str, int]()

    def placed(_piece: pa.Table, _row: int, index: int) -> str:
        where = place(numbers[index])
        places[where] = numbers[index]
        return where

    piece = pa.Table.from_pylist(list(rows.values()), pa.schema(kinds))
    raw = declare((piece,), spec, name=name, place=placed, time_zone=time_zone)
    for rejected in raw.rejected.to_pylist() if raw.rejected is not None else ():
        rejects[places[rejected["place"]]] = Reject(**rejected)
    # A declared key may be missing in one block; the guards see all blocks.
    check_columns(name, {**spec.columns, **delivered}, spec)
    return Raw(raw.table, rejected_table(reject for _, reject in sorted(rejects.items())), delivered)


def _row(body: Mapping[str, Any], spec: TableSpec, time_zone: str) -> dict[str, Any]:
    """The values of a row, times as texts; _DoesNotFit names the first that is not of the declared type."""
    row = dict.fromkeys(spec.columns)
    for column, kind in spec.columns.items():
        value, form = body.get(column), spec.times.get(column, "")
        if value is None:
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
            shown = shown_misfit(value, spec.sensitive)
            raise _DoesNotFit(reason_of(kind, time_zone, form), shown, column) from None
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
