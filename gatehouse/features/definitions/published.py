"""The published form of definitions: only their meaning, so that comments, layout and order of statements do not count.

`definitions.json` holds what `definitions.py` defines, each query its SQL without comments, and `feature_store.yaml`
its settings as JSON, which is YAML too. Scoring reads `repository` in an image without Feast, so this module is apart.
"""

import json
from collections.abc import Mapping
from typing import Any

from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.declarations import Entity
from gatehouse.features.definitions.repository import KINDS, PUBLISHED, Repository, name_of
from gatehouse.features.definitions.settings import SETTINGS_FILE, read_settings
from gatehouse.features.definitions.sql_text import code
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import identity_of, is_operational
from gatehouse.store.store import ArtifactStore


def published_files(repository: Repository) -> dict[str, bytes]:
    """The files of the configuration that stages read the repository from, by path.

    Raises ConfigurationError if Feast's settings are no YAML.
    """
    queries = {f"views/{name}.sql": view.query for name, view in repository.views.items()}
    queries |= {f"on_demand/{name}.sql": view.query for name, view in repository.on_demand.items()}
    queries |= {f"staging/{name}.sql": query for name, query in repository.staging.items()}
    queries |= {f"known/{name}.sql": query for name, query in repository.histories.items()}
    queries |= {f"labels/{repository.label.name}.sql": repository.entity_rows, "macros.sql": repository.macros}
    # Definitions are sorted, as their order has no meaning; features of a view keep theirs, the order of columns.
    defined: dict[str, list[Any]] = {
        "entities": [Entity(name=name, type=kind) for name, kind in repository.entities.items()],
        "views": [view.spec for view in repository.views.values()],
        "on_demand": [view.spec for view in repository.on_demand.values()],
        "services": [*repository.services.values()],
        "labels": [repository.label],
        "sources": [*repository.sources.values()],
    }
    bodies = {field: [_body(definition) for definition in sorted(defined[field], key=name_of)] for field in KINDS}
    texts = {path: code(query) for path, query in queries.items()}
    texts[PUBLISHED] = json.dumps(bodies, separators=(",", ":"))
    if (repository.folder / SETTINGS_FILE).is_file():
        texts[SETTINGS_FILE] = canonical_json(read_settings(repository.folder))
    return {path: text.encode() for path, text in texts.items()}


def publish_definitions(store: ArtifactStore, project: str, definitions: Mapping[str, Any]) -> str:
    """The reference of definitions that a task gets as `{"reference": …}`, or as `{"files": …}` and publishes here."""
    if definitions.keys() == {"reference"}:
        return str(definitions["reference"])
    if definitions.keys() != {"files"}:
        raise ConfigurationError(
            f"definitions: expected `reference` or `files`, found {', '.join(definitions) or 'none'}."
        )
    files = {path: text.encode() for path, text in definitions["files"].items()}
    return str(store.publish("config", f"{project}-features", files))


def _body(definition: Any) -> dict[str, Any]:
    """The fields that identify a definition, and its freshness, which a stage reads; descriptions are left out."""
    dumped = definition.model_dump(mode="json", exclude_defaults=True, exclude={"description"})
    fields = type(definition).model_fields
    return identity_of(definition) | {name: value for name, value in dumped.items() if is_operational(fields[name])}
