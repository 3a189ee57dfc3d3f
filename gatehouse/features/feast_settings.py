"""Finds what is wrong in Feast's settings of a project, `feature_store.yaml`, and would end a run in the middle."""

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
"""What Feast reads of the file, which takes any other key without a word; importing Feast would take seconds."""
PROVIDERS = ("local", "gcp", "aws", "azure", "chronon", "unity_catalog")
_FEAST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]*")
_SET = "repo_path"
"""Of Feast's, and the folder of the file, which the stages say."""


def settings_problems(folder: Path) -> Iterator[str]:
    """Unknown keys, stores that do not work here, and a name that Feast refuses, each once."""
    try:
        settings = read_settings(folder)
    except ConfigurationError as error:
        yield str(error)
        return
    text = (folder / SETTINGS_FILE).read_text()
    lines, told = lines_of(text), ""
    for key in map(str, settings):
        if key not in KEYS:
            meant = nearest(key, [each for each in KEYS if each not in settings], 0.7)
            told += meant
            advice = "; remove it, as the stages set it" if key == _SET else meant or f"; Feast has {', '.join(KEYS)}"
            yield at_line(SETTINGS_FILE, lines, f"{key}: there is no such key{advice}")
    for problem in store_problems(settings):
        if f"mean {problem.partition('.')[0]}?" not in told:
            yield at_line(SETTINGS_FILE, lines, problem)
    provider = settings.get("provider") or "local"
    if provider not in PROVIDERS and "." not in str(provider):
        meant = nearest(str(provider), PROVIDERS)
        problem = f"provider: expected one of {', '.join(PROVIDERS)}{meant}, found {shown(provider)}"
        yield at_line(SETTINGS_FILE, lines, problem)
    named, online = str(settings.get("project", "")), settings.get("online_store") or {}
    kind = online.get("type", "sqlite") if isinstance(online, dict) else "sqlite"
    if kind == "sqlite" and "mean project?" not in told and not _FEAST_NAME.fullmatch(named):
        meant = "" if "://" in named else re.sub("[^A-Za-z0-9_]", "_", named).strip("_")
        problem = (
            "project: expected letters, digits and '_', as the SQLite online store makes names of tables of it, found "
            f"{shown(named)}; write {meant or 'shop'}"
        )
        yield at_line(SETTINGS_FILE, lines, problem)
