"""Feast's settings of a project: the keys that Feast reads, and mistakes in them."""

import re
from pathlib import Path

import pytest
from feast import RepoConfig
from feast.infra.online_stores.redis import RedisOnlineStoreConfig
from feast.infra.online_stores.sqlite import SqliteOnlineStoreConfig

from gatehouse.cli.init import create_project
from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.settings import ONLINE_STORES
from gatehouse.features.feast_settings import KEYS, settings_problems
from gatehouse.project.checking import check_project

SETTINGS = """project: shop
registry: registry.db
offline_store:
  type: gatehouse.features.point_in_time.offline_store.AsofOfflineStore
online_store: {type: sqlite}
"""


def problems(folder: Path, text: str) -> list[str]:
    (folder / "feature_store.yaml").write_text(text)
    return list(settings_problems(folder))


def test_the_check_of_a_project_names_a_misspelled_key_with_its_line(tmp_path: Path) -> None:
    settings = create_project("returns", tmp_path) / "features/feature_store.yaml"
    settings.write_text(settings.read_text().replace("online_store:", "online_stor:"))
    with pytest.raises(ConfigurationError, match=r"features/feature_store.yaml:7: online_stor: .*online_store\?"):
        check_project(tmp_path / "returns")


def test_the_known_keys_are_those_of_feast(tmp_path: Path) -> None:
    assert {field.alias or name for name, field in RepoConfig.model_fields.items()} == {*KEYS, "repo_path"}
    configs = {"sqlite": SqliteOnlineStoreConfig, "redis": RedisOnlineStoreConfig}
    assert {name: {*config.model_fields} for name, config in configs.items()} == {
        name: {*keys} for name, keys in ONLINE_STORES.items()
    }
    others = [key for key in KEYS if f"{key}:" not in SETTINGS and not key.startswith("entity_key")]
    assert problems(tmp_path, SETTINGS + "".join(f"{key}: null\n" for key in others)) == []


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("entity_key_serialization_version: 3", ""),
        ("entity_key_serialization_version: 2", "entity_key_serialization_version"),
        ("provider: own.module.Provider", ""),
        ("provider: 2024-01-01", "provider"),
        ("flags: {a: [.inf]}", "flags"),
        ("providerr: local", "providerr"),
        ("repo_path: .", "repo_path"),
        ("project: re-turns", "project"),
        ("online_store: {type: redis, conection_string: x}", "online_store.conection_string"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, line: str, key: str) -> None:
    name = line.partition(":")[0]
    lines = [row for row in SETTINGS.splitlines() if not row.startswith(f"{name}:")] + [line]
    found = problems(tmp_path, "\n".join(lines) + "\n")
    assert len(found) == bool(key)
    assert all(re.match(rf"feature_store\.yaml(:{len(lines)})?: {key}: ", problem) for problem in found)
