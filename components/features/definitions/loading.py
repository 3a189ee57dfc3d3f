"""Loads `definitions.py` of a feature repository: what it defines, by kind and name."""

import importlib.util
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from gatehouse.components.features.definitions.declarations import (
    Entity,
    FeatureService,
    FeatureView,
    LabelView,
    OnDemandView,
    Source,
    Stream,
    problems_listed,
)
from gatehouse.errors import ConfigurationError

FILE = "definitions.py"
_MODULE = "gatehouse_feature_definitions"
_T = TypeVar("_T")


@dataclass(frozen=True)
class Definitions:
    """What `definitions.py` defines.

    Attributes:
        entities: Entity by name.
        views: Feature view by name.
        on_demand: On-demand view by name.
        services: Feature service by name.
        labels: The label views; there should be one.
        sources: Source by table.
        streams: Stream by table.
    """

    entities: dict[str, Entity]
    views: dict[str, FeatureView]
    on_demand: dict[str, OnDemandView]
    services: dict[str, FeatureService]
    labels: list[LabelView]
    sources: dict[str, Source]
    streams: dict[str, Stream]


def load_definitions(folder: Path, problems: list[str]) -> Definitions:
    """Run `definitions.py` in `folder`; definitions that are wrong alone are told in `problems` and left out.

    Raises:
        ConfigurationError: if there is no such file, or it does not run.
    """
    with problems_listed(problems):
        module = _run(folder / FILE)
    defined = [value for value in vars(module).values() if not isinstance(value, type)]
    labels = _of(LabelView, defined)
    if len(labels) != 1 and not any(": LabelView" in problem for problem in problems):
        problems.append(f"{FILE}: expected one LabelView, found {len(labels)}")
    return Definitions(
        entities={one.name: one for one in _of(Entity, defined)},
        views=_named(_of(FeatureView, defined), problems),
        on_demand=_named(_of(OnDemandView, defined), problems),
        services=_named(_of(FeatureService, defined), problems),
        labels=labels,
        sources={one.table: one for one in _of(Source, defined)},
        streams={one.table: one for one in _of(Stream, defined)},
    )


def _of(kind: type[_T], defined: Iterable[object]) -> list[_T]:
    """The definitions of one kind; those whose problems are listed already have no fields."""
    return [one for one in defined if isinstance(one, kind) and vars(one)]


def _named(defined: Iterable[_T], problems: list[str]) -> dict[str, _T]:
    found: dict[str, _T] = {}
    for one in defined:
        name = str(getattr(one, "name"))  # noqa: B009  # views and services share no base with a name
        if name in found and found[name] is not one:
            problems.append(f"{FILE}: two {type(one).__name__}s are called {name!r}")
        found[name] = one
    return found


def _run(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ConfigurationError(f"{path.name}: expected the feature definitions in the repository, found none.")
    module = importlib.util.module_from_spec(spec)
    written = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigurationError(f"{path.name} does not run: {type(error).__name__}: {error}") from error
    finally:
        sys.dont_write_bytecode = written
    return module
