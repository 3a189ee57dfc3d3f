"""Finds names that a contract uses and does not list: columns, tables, and expressions that share a name."""

from collections.abc import Iterable, Iterator
from typing import Any

from gatehouse.data.validation.graded import Problem


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
