"""Finds mistakes in Feast's settings of a project, `feature_store.yaml`, before a run."""

import re
from collections.abc import Iterator
from pathlib import Path

from gatehouse.configuration.yaml_lines import at_line, lines_of, nearest, shown
from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.settings import SETTINGS_FILE, read_settings, store_problems

KEYS = (
    *("project", "project_description", "provider", "registry", "online_store", "offline_store", "batch_engine"),
    *("auth", "feature_server", "embedding_model", "flags", "entity_key_serialization_version", "coerce_tz_aware"),
    *("materialization", "openlineage", "mlflow", "data_quality_monitoring"),
)
"""The keys that Feast reads, which ignores others; importing Feast would take seconds."""


def settings_problems(folder: Path) -> Iterator[str]:
    """Unknown keys, stores that do not work here, and a project name that Feast refuses."""
    try:
        settings = read_settings(folder)
    except ConfigurationError as error:
        yield str(error)
        return
    text = (folder / SETTINGS_FILE).read_text()
    problems = [f"{key}: there is no such key{nearest(key, KEYS, 0.7)}" for key in settings if key not in KEYS]
    if not problems:
        problems += store_problems(settings)
        online = settings.get("online_store") or {}
        kind = online.get("type", "sqlite") if isinstance(online, dict) else "sqlite"
        project = str(settings.get("project", ""))
        if kind == "sqlite" and not re.fullmatch(r"[A-Za-z0-9]\w*", project, re.ASCII):
            problems.append(
                "project: expected letters, digits and '_', as the SQLite online store makes names of tables of it, "
                f"found {shown(project)}"
            )
    yield from (at_line(SETTINGS_FILE, lines_of(text), problem) for problem in problems)
