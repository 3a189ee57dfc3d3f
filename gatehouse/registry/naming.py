"""Names of model versions: NAME:2 by number, NAME@champion by alias.

The name may be left out if the store has only one model: `:2`, `@champion`.
"""

import re
from typing import NamedTuple

from gatehouse.configuration.yaml_lines import nearest
from gatehouse.errors import ConfigurationError
from gatehouse.registry.ledger import Ledger, model_names
from gatehouse.registry.state import ALIASES, CHAMPION, ModelVersion
from gatehouse.store.store import ArtifactStore

_VERSION = re.compile(r"(?P<name>[a-z][a-z0-9-]*)?(?::(?P<number>\d+)|@(?P<alias>\w+))?")


class Named(NamedTuple):
    """A model and one of its versions; number 0 if none is named."""

    ledger: Ledger
    number: int

    @property
    def version(self) -> ModelVersion:
        """The version that is named. Raises ConfigurationError if there is none."""
        state, model = self.ledger.state(), self.ledger.model_name
        found = state.version(self.number)
        if found is None:
            expected = f"expected {model}:1 to {model}:{len(state.versions)}" if state.versions else _none(model)
            lacking = f"{model} has no version {self.number}" if self.number else f"{model} alone names no version"
            raise ConfigurationError(f"{lacking}: {expected}.")
        return found


def names_a_version(text: str) -> bool:
    """Whether a text has the form of a version, and not of a reference."""
    return bool((":" in text or "@" in text) and _VERSION.fullmatch(text))


def named(store: ArtifactStore, text: str) -> Named:
    """The model and version that a text names.

    Raises:
        ConfigurationError: if it has another form, or the store has no such model or version.
    """
    found = _VERSION.fullmatch(text)
    if found is None:
        raise ConfigurationError(f"expected NAME, NAME:2 or NAME@{CHAMPION}, found {text!r}.")
    ledger = Ledger(store, _model(store, found["name"] or ""))
    if found["number"]:
        chosen = Named(ledger, int(found["number"]))
        _ = chosen.version
        return chosen
    if not found["alias"]:
        return Named(ledger, 0)
    state = ledger.state()
    holders = {alias: state.holder(alias) for alias in reversed(ALIASES)}
    if not holders.get(found["alias"]):
        held = [f"{ledger.model_name}@{alias}" for alias, number in holders.items() if number]
        lacking = f"no version is {found['alias']}" if found["alias"] in holders else f"{found['alias']} is no alias"
        expected = f"expected {' or '.join(held) or 'a number, as nothing is promoted'}"
        raise ConfigurationError(f"{text}: {lacking} now; {expected if state.versions else _none(ledger.model_name)}.")
    return Named(ledger, holders[found["alias"]])


def _none(model: str) -> str:
    """What is said of a model whose candidates the gate kept out, all of them."""
    return f"it has no version yet, as the gate let no candidate pass; `gatehouse models show {model}` says why"


def _model(store: ArtifactStore, name: str) -> str:
    names = model_names(store)
    if name in names:
        return name
    if not name and len(names) == 1:
        return names[0]
    raise ConfigurationError(
        f"The store {store.address} has the models {', '.join(names) or '(none)'}: expected the name "
        f"of one, found {name!r}{nearest(name, names)}. A training run registers a model; --store chooses another "
        "store."
    )
