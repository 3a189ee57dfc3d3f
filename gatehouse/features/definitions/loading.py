"""Loads the definitions of a feature repository, from `definitions.py` or from their published form."""

import importlib.util
import json
import re
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.declarations import (
    Entity,
    FeatureService,
    FeatureView,
    LabelView,
    OnDemandView,
    Source,
)

FILE = "definitions.py"
PUBLISHED = "definitions.json"
_MODULE = "gatehouse_feature_definitions"
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
}
"""What `definitions.py` may define, by field of `Definitions`."""


@dataclass(frozen=True)
class Definitions:
    """What `definitions.py` defines."""

    entities: dict[str, Entity]
    views: dict[str, FeatureView]
    on_demand: dict[str, OnDemandView]
    services: dict[str, FeatureService]
    labels: list[LabelView]
    sources: dict[str, Source]


def load_definitions(folder: Path, problems: list[str]) -> Definitions:
    """Run `definitions.py` in `folder`; names that are defined twice are added to `problems`.

    Raises ConfigurationError if there is no such file, or it does not run; the first wrong definition ends it.
    """
    path = folder / FILE
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ConfigurationError(f"{FILE}: expected the feature definitions in the repository, found none.")
    module = importlib.util.module_from_spec(spec)
    written = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        file = Path(error.filename or FILE).name  # It may be one that the definitions import.
        raise ConfigurationError(f"{file}:{error.lineno}: {error.msg}, found {(error.text or '').strip()!r}") from error
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        place = f"{FILE}:{lines[-1]}" if lines else FILE
        ran = "" if isinstance(error, ConfigurationError) else f" does not run: {type(error).__name__}"
        raise ConfigurationError(f"{place}{ran}: {error}") from error
    finally:
        sys.dont_write_bytecode = written
    defined = list(vars(module).values())
    by_name: dict[str, dict[str, Any]] = {}
    for field, kind in KINDS.items():
        by_name[field] = {}
        for definition in defined:
            if isinstance(definition, kind):
                name = name_of(definition)
                if by_name[field].setdefault(name, definition) is not definition:
                    problems.append(f"{FILE}: two {kind.__name__}s are called {name!r}")
    labels = [*by_name.pop("labels").values()]
    if len(labels) != 1:
        problems.append(f"{FILE}: expected one LabelView, found {len(labels)}")
    return Definitions(**by_name, labels=labels)


def parse_definitions(text: str) -> Definitions:
    """Parse a published `definitions.json`. Raises ConfigurationError if another version of the code wrote it."""
    body = json.loads(text)
    by_name: dict[str, dict[str, Any]] = {}
    try:
        for field, model in KINDS.items():
            by_name[field] = {}
            for fields in body[field]:
                definition = model(**fields)
                by_name[field][name_of(definition)] = definition
    except (KeyError, ValueError, ConfigurationError) as error:
        raise ConfigurationError(
            f"{PUBLISHED}: expected definitions as this version publishes them, found {error}. Run the pipeline again."
        ) from error
    labels = [*by_name.pop("labels").values()]
    return Definitions(**by_name, labels=labels)


def name_of(definition: Any) -> str:
    """The name of a definition; for a source the name of its table."""
    return str(getattr(definition, "name", "") or definition.table)


def in_repository(repo: str, message: str) -> list[str]:
    """The problems of a feature repository as a list, each file name with the repository's folder in front."""
    listed = message.removeprefix("The feature repository has problems:\n  - ").split("\n  - ")
    return [_OF_REPOSITORY.sub(rf"{repo.rstrip('/')}/\g<1>", problem) for problem in listed]
