"""Names of model versions: NAME:2 by number, NAME@champion by alias.

The name may be left out if the store has only one model: `:2`, `@champion`.
"""

import re
from typing import NamedTuple

from gatehouse.configuration.yaml_lines import nearest
from gatehouse.errors import ConfigurationError
from gatehouse.registry.ledger import ALIASES, CHAMPION, Ledger, ModelVersion, model_names
from gatehouse.store.store import ArtifactStore

NAME = "^[a-z][a-z0-9-]*$"
"""The names of models."""
_VERSION = re.compile(r"(?P<name>[a-z][a-z0-9-]*)?(?::(?P<number>\d+)|@(?P<alias>\w+))?")


class UnknownVersionError(ConfigurationError):
    """The store has no such model or version."""


class VersionName(NamedTuple):
    """A model and one of its versions; number 0 if none is named."""

    ledger: Ledger
    number: int

    @property
    def version(self) -> ModelVersion:
        """The version that is named. Raises ConfigurationError if there is none."""
        state, model = self.ledger.state(), self.ledger.model_name
        version = state.version(self.number)
        if version is None:
            expected = f"{model}:1 to {model}:{len(state.versions)}" if state.versions else _no_version(model)
            lacking = f"{model} has no version {self.number}" if self.number else f"{model} names no version"
            raise UnknownVersionError(f"{lacking}: expected {expected}.")
        return version


def names_a_version(text: str) -> bool:
    """Whether a text has the form of a version, and not of a reference."""
    return bool((":" in text or "@" in text) and _VERSION.fullmatch(text))


def named(store: ArtifactStore, text: str) -> VersionName:
    """The model and version that a text names; raises ConfigurationError if the store has no such one."""
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ConfigurationError(f"expected NAME, NAME:2 or NAME@{CHAMPION}, found {text!r}.")
    names, name = model_names(store), match["name"] or ""
    if not name and len(names) == 1:
        name = names[0]
    if name not in names:
        raise UnknownVersionError(
            f"expected the name of a model in {store.address} ({', '.join(names) or 'none'}), found "
            f"{name!r}{nearest(name, names)}. A training run registers a model; --store chooses another store."
        )
    ledger = Ledger(store, name)
    if match["number"]:
        chosen = VersionName(ledger, int(match["number"]))
        _ = chosen.version  # Raises if there is none.
        return chosen
    if not match["alias"]:
        return VersionName(ledger, 0)
    state = ledger.state()
    holders = {alias: number for alias in reversed(ALIASES) if (number := state.holder(alias))}
    if match["alias"] not in holders:
        expected = " or ".join(f"{name}@{alias}" for alias in holders) or "a number, as nothing is promoted"
        expected = expected if state.versions else _no_version(name)
        raise UnknownVersionError(f"{text}: no version has the alias {match['alias']}: expected {expected}.")
    return VersionName(ledger, holders[match["alias"]])


def _no_version(model: str) -> str:
    return f"a candidate that the gate lets pass; `gatehouse models show {model}` says why there is none"
