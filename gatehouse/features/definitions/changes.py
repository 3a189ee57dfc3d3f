"""Finds what decides the table of a view, and what changed between two sets of definitions."""

import hashlib
import re
from collections.abc import Iterable
from typing import Any

from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.declarations import Available, FeatureView
from gatehouse.features.definitions.loading import FILE
from gatehouse.features.definitions.repository import Repository, View, staged_by, tables_of
from gatehouse.features.definitions.sql_text import code, macros_in
from gatehouse.store.identity import identity_of

_OF_JOINS = ("ttl", "event_time_only")
"""Fields of a view that decide how its table is joined; they do not affect its rows."""


def definition_of(repository: Repository, view: View) -> dict[str, Any]:
    """The parts of a view that decide its table: code, keys, features, availability, window, version."""
    spec = {name: value for name, value in identity_of(view.spec).items() if name not in _OF_JOINS}
    tables = tables_of(repository, [view.query])
    read = {name: identity_of(repository.sources[name]) for name in tables if name in repository.sources}
    keys = {name: repository.entities[name] for name in view.spec.entities}
    return {"code": code_of(repository, view), "view": spec, "keys": keys, "sources": read}


def code_of(repository: Repository, view: View) -> dict[str, str]:
    """SHA-256 of each text that decides a view's rows: its query, and the staging queries and macros that it reads.

    Comments and spaces between tokens do not count.
    """
    texts = {f"views/{view.name}.sql": view.query}
    texts |= {f"staging/{name}.sql": repository.staging[name] for name in staged_by(repository, [view.query])}
    macros = macros_in(repository.macros)
    pending = list(texts.values())
    while pending:
        words = set(re.findall(r"\w+", code(pending.pop()).lower()))
        for name in words & set(macros):
            if f"macro {name}" not in texts:
                texts[f"macro {name}"] = macros[name]
                pending.append(macros[name])
    return {name: hashlib.sha256(code(text).encode()).hexdigest() for name, text in sorted(texts.items())}


def changes(before: Repository, after: Repository) -> dict[str, list[str]]:
    """What changed between two repositories, by view; unchanged views are left out."""
    found: dict[str, list[str]] = {}
    for name in sorted({*before.views, *after.views}):
        old, new = before.views.get(name), after.views.get(name)
        if old is None or new is None:
            found[name] = ["removed" if new is None else "new"]
            continue
        lines = changed_definition(old.spec, new.spec) + _retyped_keys(new.spec, before, after)
        codes = code_of(before, old), code_of(after, new)
        lines += [f"code {text}" for text in sorted({*codes[0], *codes[1]}) if codes[0].get(text) != codes[1].get(text)]
        if lines:
            found[name] = lines
    return found


def require_one_meaning(before: Repository, after: Repository, holder: str, views: Iterable[str]) -> None:
    """Refuse views whose meaning differs from stored ones of the same version.

    Args:
        before: The definitions of what is stored.
        after: The present definitions.
        holder: What stores the views, as a message names it.
        views: Names of the stored views.

    Raises:
        ConfigurationError: listing the changes that need a new version.
    """
    problems = []
    for name in sorted({*views} & before.views.keys() & after.views.keys()):
        view = after.views[name]
        if before.views[name].spec.version == view.spec.version:
            lines = needs_version(before.views[name].spec, view.spec) + _retyped_keys(view.spec, before, after)
            problems += [
                f"{FILE}: {name}: {line}: expected another version for it than {view.spec.version}" for line in lines
            ]
    if problems:
        raise ConfigurationError(
            f"{holder} and the present definitions define the same version of a view differently:"
            + "".join(f"\n  - {text}" for text in problems)
        )


def require_versions(before: Repository, after: Repository) -> None:
    """Refuse views whose meaning changed while their version did not.

    Raises:
        ConfigurationError: listing the changes that need a new version, and which version is expected.
    """
    problems = []
    for name, view in after.views.items():
        if name in before.views:
            old, new = before.views[name].spec, view.spec
            wanted = f"expected version={old.version + 1} for it, found {new.version}"
            lines = needs_version(old, new)
            lines += _retyped_keys(new, before, after) if new.version <= old.version else []
            problems += [f"{FILE}: {name}: {line}: {wanted}" for line in lines]
    if problems:
        raise ConfigurationError("The feature repository has problems:" + "".join(f"\n  - {text}" for text in problems))


def changed_definition(before: FeatureView, after: FeatureView) -> list[str]:
    """What changed between two definitions of a view, apart from its query."""
    lines = [f"feature {name} added" for name in after.features if name not in before.features]
    lines += [f"feature {name} removed" for name in before.features if name not in after.features]
    lines += [
        f"feature {name}: {before.features[name]} became {kind}"
        for name, kind in after.features.items()
        if before.features.get(name, kind) != kind
    ]
    for field in ("entities", "available", "static", "event_time_only", "ttl", "window", "version"):
        old, new = (getattr(view, field) for view in (before, after))
        if old != new:
            lines.append(f"{field}: {_shown(old)} became {_shown(new)}")
    return lines


def needs_version(before: FeatureView, after: FeatureView) -> list[str]:
    """The changes of meaning that need a new version; none if `after` has a new version."""
    if after.version > before.version:
        return []
    compatible = [f"feature {name} added" for name in after.features if name not in before.features]
    return [line for line in changed_definition(before, after) if line not in compatible]


def _retyped_keys(view: FeatureView, before: Repository, after: Repository) -> list[str]:
    """The keys of a view whose type changed."""
    both = [(key, before.entities[key], after.entities[key]) for key in view.entities if key in before.entities]
    return [f"entity {key}: {old} became {new}" for key, old, new in both if old != new]


def _shown(value: Any) -> str:
    if isinstance(value, Available):
        return f"{value.column} + {value.lag}"
    return ", ".join(value) if isinstance(value, tuple) else str(value)
