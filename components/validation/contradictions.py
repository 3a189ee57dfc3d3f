"""Finds rules of a contract that mean nothing, contradict each other, or name what is not there."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gatehouse.components.validation.graded import Problem

if TYPE_CHECKING:
    from gatehouse.components.validation.contract import ColumnContract, TableContract

_NUMERIC = ("int64", "double")
_INT64 = range(-(2**63), 2**63)
_ON_TEXTS = ("pattern", "min_length", "max_length")
_AGAINST_A_BASELINE = ("mean_shift", "spread_ratio", "psi", "kl", "linf", "js")
_PAIRS = (("min", "max"), ("min_length", "max_length"), ("min_distinct_share", "max_distinct_share"))


def column_problems(column: "ColumnContract") -> Iterator[Problem]:
    """Rules that cannot be meant for a column of this type, or that leave no value."""
    kind = column.type.value
    blocks: list[tuple[tuple[str, ...], dict[str, Any]]] = [((), dict(column.given()))]
    if column.warn is not None:
        blocks.append((("warn",), dict(column.warn.given())))
    for place, rules in blocks:
        for key, rule in rules.items():
            why = _unsuited(key, rule.value, kind, column.sensitive)
            if why:
                yield (*place, key), why, rule.value
            if place and rule.severity == "fail":
                yield (
                    (*place, key, "severity"),
                    "stands under `warn`; move the rule up, or leave `severity` out",
                    "fail",
                )
        for low, high in _PAIRS:
            if low in rules and high in rules:
                yield from _reversed(place, low, rules[low].value, high, rules[high].value)
    if not column.nullable.value and column.completeness is not None:
        message = "says nothing beside nullable: false; keep one of the two"
        yield ("completeness",), message, column.completeness.value


def _unsuited(key: str, value: Any, kind: str, sensitive: bool) -> str:
    """Why a rule cannot stand at a column of this type; empty where it can."""
    if key in ("min", "max"):
        return _not_a_bound(value, kind)
    if key in _ON_TEXTS and kind != "string":
        return f"expected a column of type string, found {kind}"
    if key == "allowed":
        wanted: dict[str, type] = {"string": str, "int64": int, "bool": bool}
        wrong = [one for one in value if kind not in wanted or type(one) is not wanted[kind]]
        return f"{wrong!r} cannot be values of a column of type {kind}" if wrong else ""
    if key in _AGAINST_A_BASELINE:
        if sensitive:
            return "needs a histogram or moments, and none is kept of a sensitive column"
        if kind == "timestamp":
            return "a timestamp moves on by nature; expected another type"
        if key in ("mean_shift", "spread_ratio") and kind not in _NUMERIC:
            return f"expected a numeric column, found {kind}"
    return ""


def _not_a_bound(value: Any, kind: str) -> str:
    if isinstance(value, datetime) != (kind == "timestamp") or kind not in (*_NUMERIC, "timestamp"):
        return f"{value!r} cannot bound a column of type {kind}"
    if kind == "int64" and not _INT64.start <= value < _INT64.stop:
        return f"{value!r} is outside of what an int64 can be"
    return ""


def _reversed(place: tuple[str, ...], low: str, least: Any, high: str, greatest: Any) -> Iterator[Problem]:
    if isinstance(least, datetime) == isinstance(greatest, datetime) and least > greatest:
        yield (*place, low), f"expected {low} <= {high}, found {least} > {greatest}", least


def table_problems(table: "TableContract") -> Iterator[Problem]:
    """Row counts that no table has, and a freshness of what is no time."""
    for low, high in (("min_rows", "max_rows"), ("min_rows_ratio", "max_rows_ratio")):
        least, greatest = getattr(table, low), getattr(table, high)
        if least is not None and greatest is not None:
            yield from _reversed((), low, least.value, high, greatest.value)
    timed = table.freshness.column if table.freshness else ""
    if timed in table.columns and table.columns[timed].type.value != "timestamp":
        yield ("freshness", "column"), f"expected a timestamp column, found {timed!r}", timed


def name_problems(body: Any) -> Iterator[Problem]:
    """Names that a contract uses and does not know, read before its form is, so that all mistakes are told at once."""
    tables = _mapping(_mapping(body).get("tables"))
    for table, promised in tables.items():
        columns = _columns(promised)
        place = ("tables", str(table))
        for where, used in _used_columns(_mapping(promised)):
            for column in used:
                if column not in columns:
                    yield (*place, *where), f"the contract lists no column {column!r} of {table}", column
        yield from _repeated_names(place, _mapping(promised))
        for index, key in enumerate(_sequence(_mapping(promised).get("foreign_keys"))):
            yield from _leads_nowhere((*place, "foreign_keys", index), _mapping(key), tables)


def _used_columns(table: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], list[str]]]:
    for index, key in enumerate(_sequence(table.get("unique"))):
        yield ("unique", index), _texts(key if isinstance(key, list) else _mapping(key).get("columns"))
    order = table.get("ordered")
    yield ("ordered",), _texts(order if isinstance(order, list) else _mapping(order).get("by"))
    for index, key in enumerate(_sequence(table.get("foreign_keys"))):
        yield ("foreign_keys", index, "columns"), _texts(_mapping(key).get("columns"))
    fresh = _mapping(table.get("freshness")).get("column")
    yield ("freshness", "column"), [fresh] if isinstance(fresh, str) else []


def _repeated_names(place: tuple[str, ...], table: dict[str, Any]) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, expression in enumerate(_sequence(table.get("expressions"))):
        name = _mapping(expression).get("name")
        if isinstance(name, str) and name in seen:
            yield (*place, "expressions", index, "name"), "expected different names", name
        seen.add(str(name))


def _leads_nowhere(place: tuple[str | int, ...], key: dict[str, Any], tables: dict[str, Any]) -> Iterator[Problem]:
    target = key.get("table")
    if key.get("snapshot") or not isinstance(target, str):
        return
    if target not in tables:
        yield (*place, "table"), f"the contract has no table {target!r}", target
        return
    for column in _texts(key.get("to")) or _texts(key.get("columns")):
        if column not in _columns(tables[target]):
            yield (*place, "to" if key.get("to") else "columns"), f"table {target} lists no column {column}", column


def _columns(table: Any) -> Iterable[str]:
    return _mapping(_mapping(table).get("columns")).keys()


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _sequence(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _texts(value: Any) -> list[str]:
    return [each for each in _sequence(value) if isinstance(each, str)]
