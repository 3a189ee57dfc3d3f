"""Finds what decides the table of a view, and what changed between two sets of definitions."""

import hashlib
import re
from collections.abc import Iterable
from typing import Any

from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.declarations import Available, FeatureView
from gatehouse.features.definitions.repository import FILE, Repository, View, check_out, staged_by, tables_of
from gatehouse.features.definitions.sql_text import code, macros_in
from gatehouse.store.identity import identity_of
from gatehouse.store.store import ArtifactStore

_OF_JOINS = ("ttl", "event_time_only")
"""Fields of a view that decide how its table is joined; they do not affect its rows."""


def definition_of(repository: Repository, view: View) -> dict[str, Any]:
    """The parts of a view that decide its table: code, keys, features, availability, window, version."""
    spec = {name: value for name, value in identity_of(view.spec).items() if name not in _OF_JOINS}
    tables = tables_of(repository, [view.query])
    sources = {name: identity_of(repository.sources[name]) for name in tables if name in repository.sources}
    keys = {name: repository.entities[name] for name in view.spec.entities}
    return {"code": code_of(repository, view), "view": spec, "keys": keys, "sources": sources}


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
    """The changes between two repositories, by view; unchanged views are left out."""
    changed: dict[str, list[str]] = {}
    for name in sorted({*before.views, *after.views}):
        old, new = before.views.get(name), after.views.get(name)
        if old is None or new is None:
            changed[name] = ["removed" if new is None else "new"]
            continue
        lines = changed_definition(old.spec, new.spec) + _retyped_keys(new.spec, before, after)
        codes = code_of(before, old), code_of(after, new)
        lines += [f"code {text}" for text in sorted({*codes[0], *codes[1]}) if codes[0].get(text) != codes[1].get(text)]
        if lines:
            changed[name] = lines
    return changed


def require_one_meaning(before: Repository, after: Repository, holder: str, views: Iterable[str]) -> None:
    """Raises ConfigurationError listing the changes of views that keep their version, other than added features."""
    problems = []
    for name in sorted({*views} & before.views.keys() & after.views.keys()):
        old, new = before.views[name].spec, after.views[name].spec
        if old.version == new.version:
            added = [f"feature {feature} added" for feature in new.features if feature not in old.features]
            lines = changed_definition(old, new) + _retyped_keys(new, before, after)
            lines = [line for line in lines if line not in added]
            problems += [f"{FILE}: {name}: {line}: expected another version than {new.version}" for line in lines]
    if problems:
        raise ConfigurationError(
            f"{holder} and the present definitions define the same version of a view differently:"
            + "".join(f"\n  - {text}" for text in problems)
            + "\nGive the view the next `version`; or write a project of `gatehouse init --from` anew, which leaves a "
            "column out with --without."
        )


def require_same_features(store: ArtifactStore, service: str, trained_on: str, computed_by: str) -> None:
    """Raises ConfigurationError if definitions give a feature of a service another meaning than in training.

    `trained_on` and `computed_by` are references of the definitions of the model, and of the rows to score.
    """
    if trained_on == computed_by:
        return
    with store.workspace() as workspace:
        before = check_out(store, trained_on, workspace / "trained_on")
        after = check_out(store, computed_by, workspace / "computed_by")
    read = before.service(service)
    changed = {name: lines for name, lines in changes(before, after).items() if name in read.views}
    for name in read.on_demand:
        views = [repository.on_demand.get(name) for repository in (before, after)]
        meanings = [(identity_of(view.spec), code(view.query)) for view in views if view is not None]
        if len(meanings) < 2 or meanings[0] != meanings[1]:
            changed[name] = ["its query or its columns"]
    if changed:
        lines = "".join(f"\n  - {name}: {', '.join(lines)}" for name, lines in sorted(changed.items()))
        raise ConfigurationError(
            f"The model was trained on features of {trained_on}, but the rows have features of {computed_by}, which "
            f"computes features of the service {service} differently:{lines}\nTrain the model again, or score rows "
            "with features of the definitions that it was trained on."
        )


def changed_definition(before: FeatureView, after: FeatureView) -> list[str]:
    """The changes between two definitions of a view, apart from its query."""
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


def _retyped_keys(view: FeatureView, before: Repository, after: Repository) -> list[str]:
    both = [(key, before.entities[key], after.entities[key]) for key in view.entities if key in before.entities]
    return [f"entity {key}: {old} became {new}" for key, old, new in both if old != new]


def _shown(value: Any) -> str:
    if isinstance(value, Available):
        return f"{value.column} + {value.lag}"
    return ", ".join(value) if isinstance(value, tuple) else str(value)
