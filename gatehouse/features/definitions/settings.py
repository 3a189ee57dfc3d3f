"""Feast's settings of a feature repository: what `feature_store.yaml` says."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gatehouse.configuration.yaml_lines import at_line, lines_of, read_text, read_yaml, value_text
from gatehouse.errors import ConfigurationError

SETTINGS_FILE = "feature_store.yaml"
OFFLINE_STORE = "gatehouse.features.point_in_time.offline_store.AsofOfflineStore"
ONLINE_STORES = ("sqlite", "redis")
KEY_VERSION = 3
"""The version of Feast's `serialize_entity_key` in which `gatehouse.online.feast_layout` writes keys."""


def read_settings(folder: Path) -> dict[str, Any]:
    """Read `feature_store.yaml` in a folder. Raises ConfigurationError if it is missing or no YAML mapping."""
    path = folder / SETTINGS_FILE
    if not path.is_file():
        raise ConfigurationError(f"{SETTINGS_FILE}: expected Feast's settings in the feature repository, found none.")
    problems: list[str] = []
    if (text := read_text(path, SETTINGS_FILE, problems)) is None:
        raise ConfigurationError(problems[0])
    body = read_yaml(text, SETTINGS_FILE)
    if not isinstance(body, dict):
        raise ConfigurationError(f"{SETTINGS_FILE}: expected keys with Feast's settings, found {value_text(body)}.")
    return body


def store_problems(settings: Mapping[str, Any]) -> Iterator[str]:
    """Stores in Feast's settings that do not work here, each with its key."""
    offline, online = settings.get("offline_store"), settings.get("online_store") or "sqlite"
    kind = offline.get("type") if isinstance(offline, dict) else offline
    if kind != OFFLINE_STORE:
        yield f"offline_store.type: expected {OFFLINE_STORE}, found {value_text(kind) if kind else 'none'}"
    online = online if isinstance(online, dict) else {"type": online}
    kind = online.get("type", "sqlite")
    if kind not in ONLINE_STORES:
        yield f"online_store.type: expected one of {', '.join(ONLINE_STORES)}, found {value_text(kind)}"
    if online.get("redis_type", "redis") != "redis":
        yield f"online_store.redis_type: expected redis, found {value_text(online['redis_type'])}"
    version = settings.get("entity_key_serialization_version", KEY_VERSION)
    if version != KEY_VERSION:
        yield f"entity_key_serialization_version: expected {KEY_VERSION}, found {value_text(version)}"


def settings_problems(folder: Path) -> Iterator[str]:
    """Stores that do not work here, and a project name that Feast refuses, each with its line."""
    try:
        settings = read_settings(folder)
    except ConfigurationError as error:
        yield str(error)
        return
    problems = [*store_problems(settings)]
    online, project = settings.get("online_store") or {}, str(settings.get("project", ""))
    kind = online.get("type", "sqlite") if isinstance(online, dict) else online
    if kind == "sqlite" and not re.fullmatch(r"[A-Za-z0-9]\w*", project, re.ASCII):
        problems.append(f"project: expected letters, digits and '_', found {value_text(project)}")
    lines = lines_of((folder / SETTINGS_FILE).read_text())
    yield from (at_line(SETTINGS_FILE, lines, problem) for problem in problems)


def feast_name(project: str) -> str:
    """The name of a project in Feast, which uses it in names of SQL tables."""
    return project.replace("-", "_")
