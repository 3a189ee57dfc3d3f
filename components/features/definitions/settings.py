"""Feast's settings of a feature repository: what `feature_store.yaml` says."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from gatehouse.errors import ConfigurationError
from gatehouse.yaml_lines import nearest, shown
from gatehouse.yaml_text import not_yaml, read_text, read_yaml

SETTINGS_FILE = "feature_store.yaml"
OFFLINE_STORE = "gatehouse.components.features.point_in_time.offline_store.AsofOfflineStore"
ONLINE_STORES = ("sqlite", "redis")


def read_settings(folder: Path) -> dict[str, Any]:
    """Read `feature_store.yaml` in a folder.

    Raises:
        ConfigurationError: if the file is missing, is not YAML, or is not a mapping.
    """
    path = folder / SETTINGS_FILE
    if not path.is_file():
        raise ConfigurationError(f"{SETTINGS_FILE}: expected Feast's settings in the feature repository, found none.")
    problems: list[str] = []
    if (text := read_text(path, SETTINGS_FILE, problems)) is None:
        raise ConfigurationError(problems[0])
    try:
        body = read_yaml(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(not_yaml(SETTINGS_FILE, text, error)) from error
    if body is None:
        raise ConfigurationError(f"{SETTINGS_FILE}: expected keys with Feast's settings, found an empty file.")
    if not isinstance(body, dict):
        raise ConfigurationError(f"{SETTINGS_FILE}: expected keys with Feast's settings, found {shown(body)}.")
    return body


def store_problems(settings: Mapping[str, Any]) -> Iterator[str]:
    """Stores in Feast's settings that are none of those that work here, each with its key."""
    offline, online = settings.get("offline_store"), settings.get("online_store") or "sqlite"
    kind = offline.get("type") if isinstance(offline, dict) else offline
    if kind != OFFLINE_STORE:
        yield (
            f"offline_store.type: expected {OFFLINE_STORE}, the only one that joins point-in-time as training sets "
            f"want it, found {shown(kind) if kind else 'none'}"
        )
    kind = online.get("type", "sqlite") if isinstance(online, dict) else online
    if kind not in ONLINE_STORES:
        meant = nearest(str(kind), ONLINE_STORES)
        yield f"online_store.type: expected one of {', '.join(ONLINE_STORES)}{meant}, found {shown(kind)}"
    elif isinstance(online, dict) and kind == "redis" and online.get("redis_type", "redis") != "redis":
        yield f"online_store.redis_type: expected redis, found {shown(online['redis_type'])}"


def feast_name(project: str) -> str:
    """The name of a project in Feast, which uses it in names of SQL tables."""
    return project.replace("-", "_")
