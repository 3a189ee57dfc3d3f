"""Server-side apply as the stand-in for a cluster does it: a field belongs to who set it, and others conflict."""

import copy
from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]
Managers = dict[str, dict[tuple[str, ...], Any]]
"""The fields that each manager has set, by their path, with their values; a list is one field."""


def apply(
    present: Object | None, body: Object, managers: Managers, manager: str, force: bool
) -> tuple[Object, Managers, list[str]]:
    """The object after an apply, who has set what in it, and the conflicts; with these, nothing is changed."""
    wanted = dict(_fields(body))
    others = {name: fields for name, fields in managers.items() if name != manager}
    conflicts = [
        f'conflict with "{name}" using {body["apiVersion"]}: .{".".join(path)}'
        for name, fields in others.items()
        for path, value in fields.items()
        if path in wanted and wanted[path] != value
    ]
    if conflicts and not force:
        return present or {}, managers, conflicts
    result = copy.deepcopy(present or {})
    kept = {path for fields in others.values() for path in fields}
    for path in managers.get(manager, {}).keys() - wanted.keys() - kept:
        _parent(result, path).pop(path[-1], None)
    for path, value in wanted.items():
        _parent(result, path)[path[-1]] = value
    left = {
        name: {path: v for path, v in fields.items() if path not in wanted or wanted[path] == v}
        for name, fields in others.items()
    }
    return result, left | {manager: wanted}, []


def _fields(body: Object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in body.items():
        if isinstance(value, dict) and value:
            yield from _fields(value, (*path, name))
        else:
            yield (*path, name), value


def _parent(body: Object, path: tuple[str, ...]) -> Object:
    for name in path[:-1]:
        body = body.setdefault(name, {})
    return body
