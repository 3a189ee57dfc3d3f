"""Loads the definitions of a feature repository, from `definitions.py` or from their published form."""

import importlib.util
import json
import re
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from pydantic import ValidationError

from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.declarations import (
    Entity,
    FeatureService,
    FeatureView,
    LabelView,
    OnDemandView,
    Source,
    Stream,
    problems_listed,
)

FILE = "definitions.py"
PUBLISHED = "definitions.json"
_MODULE = "gatehouse_feature_definitions"
_T = TypeVar("_T")
_OF_REPOSITORY = re.compile(
    r"^(?:The feature repository's )?(definitions\.py|feature_store\.yaml|macros\.sql|\w+/[^ :]+\.sql)"
)
"""The beginning of each problem message of a feature repository."""
KINDS: dict[str, type[Any]] = {
    "entities": Entity,
    "views": FeatureView,
    "on_demand": OnDemandView,
    "services": FeatureService,
    "labels": LabelView,
    "sources": Source,
    "streams": Stream,
}
"""What `definitions.py` may define, by field of `Definitions`."""


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
        wrong: Names of definitions that are wrong and left out; what reads them is not wrong for that.
    """

    entities: dict[str, Entity]
    views: dict[str, FeatureView]
    on_demand: dict[str, OnDemandView]
    services: dict[str, FeatureService]
    labels: list[LabelView]
    sources: dict[str, Source]
    streams: dict[str, Stream]
    wrong: frozenset[str] = frozenset()


def load_definitions(folder: Path, problems: list[str]) -> Definitions:
    """Run `definitions.py` in `folder`. A definition that is wrong is left out and reported in `problems`.

    Raises:
        ConfigurationError: if there is no such file, or it does not run.
    """
    wrong = set[str]()
    with problems_listed(problems, wrong):
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
        wrong=frozenset(wrong),
    )


def parse_definitions(text: str) -> Definitions:
    """Parse a published `definitions.json`, as `definitions_text` writes it.

    Raises:
        ConfigurationError: if another version of the code wrote it.
    """
    body = json.loads(text)
    try:
        found = {kind: [model(**one) for one in body[kind]] for kind, model in KINDS.items()}
    except (KeyError, ValidationError) as error:
        raise ConfigurationError(
            f"{PUBLISHED}: expected definitions as this version publishes them, found {error}. Run the pipeline again, "
            "which publishes them anew."
        ) from error
    labels = found.pop("labels")
    by_name: dict[str, Any] = {kind: {called(one): one for one in ones} for kind, ones in found.items()}
    return Definitions(**by_name, labels=labels)


def called(one: Any) -> str:
    """The name of a definition; for a source or a stream the name of its table."""
    return str(getattr(one, "name", "") or one.table)


def _of(kind: type[_T], defined: Iterable[object]) -> list[_T]:
    """The definitions of one kind, without those whose problems are listed already: they have no fields."""
    return [one for one in defined if isinstance(one, kind) and vars(one)]


def _named(defined: Iterable[_T], problems: list[str]) -> dict[str, _T]:
    found: dict[str, _T] = {}
    for one in defined:
        name = str(getattr(one, "name"))  # noqa: B009  # views and services share no base with a name
        if name in found and found[name] is not one:
            problems.append(f"{FILE}: two {type(one).__name__}s are called {name!r}")
        found[name] = one
    return found


def _line(path: Path, error: BaseException) -> str:
    """`:LINE`, the last line of the file that ran; empty where none ran."""
    reached = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f":{reached[-1]}" if reached else ""


def _run(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ConfigurationError(f"{path.name}: expected the feature definitions in the repository, found none.")
    module = importlib.util.module_from_spec(spec)
    written = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        file = Path(error.filename or path.name).name  # It may be one that the definitions import.
        raise ConfigurationError(
            f"{file}:{error.lineno}: is no Python: {error.msg}, found {(error.text or '').strip()!r}. Often a comma, a "
            "quote or a bracket is missing there, or in the line before."
        ) from error
    except ConfigurationError as error:
        raise ConfigurationError(f"{path.name}{_line(path, error)}: {error}") from error
    except (Exception, SystemExit) as error:
        where = f"{path.name}{_line(path, error)}"
        raise ConfigurationError(f"{where} does not run: {type(error).__name__}: {error}") from error
    finally:
        sys.dont_write_bytecode = written
    return module


def in_repository(repo: str, told: str) -> list[str]:
    """The problems of a feature repository as a list, each file name with the repository's folder in front."""
    listed = told.removeprefix("The feature repository has problems:\n  - ").split("\n  - ")
    return [_OF_REPOSITORY.sub(rf"{repo.rstrip('/')}/\g<1>", problem) for problem in listed]
