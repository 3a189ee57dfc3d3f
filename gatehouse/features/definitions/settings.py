"""Feast's settings of a feature repository: what `feature_store.yaml` says."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gatehouse.configuration.yaml_lines import nearest, read_text, read_yaml, shown
from gatehouse.errors import ConfigurationError

SETTINGS_FILE = "feature_store.yaml"
OFFLINE_STORE = "gatehouse.features.point_in_time.offline_store.AsofOfflineStore"
ONLINE_STORES = {
    "sqlite": (
        *("type", "path", "vector_enabled", "similarity", "text_search_enabled"),
        "enable_openai_compatible_store",
    ),
    "redis": (
        *("type", "redis_type", "client", "sentinel_master", "connection_string", "key_ttl_seconds"),
        *("full_scan_for_deletion", "skip_dedup"),
    ),
}
"""The online stores that work here, each with the settings that Feast has for it."""
KEY_VERSION = 3
"""The version of Feast's `serialize_entity_key` in which `features.online.feast_layout` writes keys."""
_KEY_VERSION = "entity_key_serialization_version"


def read_settings(folder: Path) -> dict[str, Any]:
    """Read `feature_store.yaml` in a folder.

    Raises ConfigurationError if the file is missing, is not YAML, or is not a mapping.
    """
    path = folder / SETTINGS_FILE
    if not path.is_file():
        raise ConfigurationError(f"{SETTINGS_FILE}: expected Feast's settings in the feature repository, found none.")
    problems: list[str] = []
    if (text := read_text(path, SETTINGS_FILE, problems)) is None:
        raise ConfigurationError(problems[0])
    body = read_yaml(text, SETTINGS_FILE)
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
            f"offline_store.type: expected {OFFLINE_STORE}, whose joins are point-in-time, found "
            f"{shown(kind) if kind else 'none'}"
        )
    kind = online.get("type", "sqlite") if isinstance(online, dict) else online
    if not isinstance(kind, str) or kind not in ONLINE_STORES:
        meant = nearest(str(kind), ONLINE_STORES)
        yield f"online_store.type: expected one of {', '.join(ONLINE_STORES)}{meant}, found {shown(kind)}"
    elif isinstance(online, dict):
        if kind == "redis" and online.get("redis_type", "redis") != "redis":
            yield f"online_store.redis_type: expected redis, found {shown(online['redis_type'])}"
        for key in map(str, online):
            if key not in ONLINE_STORES[kind]:
                advice = nearest(key, ONLINE_STORES[kind], 0.7) or f"; Feast has {', '.join(ONLINE_STORES[kind])}"
                yield f"online_store.{key}: there is no such key for {kind}{advice}"
    version = settings.get(_KEY_VERSION, KEY_VERSION)
    if version != KEY_VERSION:
        yield (
            f"{_KEY_VERSION}: expected {KEY_VERSION}, in which the online store holds its keys, found {shown(version)}"
        )


def feast_name(project: str) -> str:
    """The name of a project in Feast, which uses it in names of SQL tables."""
    return project.replace("-", "_")
