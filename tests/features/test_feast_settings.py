"""Feast's settings of a project: the keys that Feast reads, and mistakes in them."""

import re
from pathlib import Path

import pytest
from feast import RepoConfig
from feast.infra.online_stores.redis import RedisOnlineStoreConfig
from feast.infra.online_stores.sqlite import SqliteOnlineStoreConfig
from feast.infra.provider import PROVIDERS_CLASS_FOR_TYPE

from gatehouse.cli.init import create_project
from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.settings import ONLINE_STORES
from gatehouse.features.feast_settings import KEYS, PROVIDERS, settings_problems
from gatehouse.project.checking import check_project

_RIGHT = """project: shop
registry: registry.db
offline_store:
  type: gatehouse.features.point_in_time.offline_store.AsofOfflineStore
online_store: {type: sqlite}
"""


def _told(folder: Path, text: str) -> list[str]:
    (folder / "feature_store.yaml").write_text(text)
    return list(settings_problems(folder))


def test_the_check_of_a_project_tells_a_misspelled_key(tmp_path: Path) -> None:
    settings = create_project("returns", tmp_path) / "features/feature_store.yaml"
    settings.write_text(settings.read_text().replace("online_store:", "online_stor:"))
    told = r"features/feature_store.yaml:7: online_stor: there is no such key \(did you mean online_store\?\)"
    with pytest.raises(ConfigurationError, match=f"(?s)^1 problem .*{told}$"):
        check_project(tmp_path / "returns")


def test_the_known_keys_are_those_of_feast() -> None:
    assert {field.alias or name for name, field in RepoConfig.model_fields.items()} == {*KEYS, "repo_path"}


def test_the_known_providers_are_those_of_feast() -> None:
    assert {*PROVIDERS} == {*PROVIDERS_CLASS_FOR_TYPE}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("entity_key_serialization_version: 3", ""),
        ("entity_key_serialization_version: 2", "expected 3, in which the online store holds its keys, found 2"),
        ("entity_key_serialization_version: yes", "expected 3, in which the online store holds its keys, found 'yes'"),
        ("provider: gcp", ""),
        ("provider: own.module.Provider", ""),
        (
            "provider: locl",
            "expected one of local, gcp, aws, azure, chronon, unity_catalog (did you mean local?), found 'locl'",
        ),
        ("provider: 2024-01-01", "expected texts and finite numbers, found 2024-01-01; put it in quotes"),
        ("flags: {1: a, b: c}", "expected texts and finite numbers, found 1; put it in quotes"),
        ("flags: {a: [.inf]}", "expected texts and finite numbers, found .inf; put it in quotes"),
        ("provider: 3", "expected one of local, gcp, aws, azure, chronon, unity_catalog, found 3"),
    ],
)
def test_settings_that_would_end_a_run_in_the_middle_are_told(tmp_path: Path, line: str, told: str) -> None:
    found = _told(tmp_path, f"{_RIGHT}{line}\n")
    place = r"feature_store\.yaml(:6)?: "
    said = [bool(re.match(place + re.escape(f"{line.partition(':')[0]}: {told}"), text)) for text in found]
    assert said == [True] * bool(told)


def test_settings_of_an_online_store_are_those_of_feast(tmp_path: Path) -> None:
    configs = {"sqlite": SqliteOnlineStoreConfig, "redis": RedisOnlineStoreConfig}
    assert {name: {*config.model_fields} for name, config in configs.items()} == {
        name: {*keys} for name, keys in ONLINE_STORES.items()
    }
    redis = _RIGHT.replace("{type: sqlite}", "{type: redis, conection_string: 'redis:6379'}")
    told = "online_store.conection_string: there is no such key for redis (did you mean connection_string?)"
    assert _told(tmp_path, redis) == [f"feature_store.yaml:5: {told}"]


def test_every_key_of_feast_is_taken(tmp_path: Path) -> None:
    further = [key for key in KEYS if f"{key}:" not in _RIGHT and not key.startswith("entity_key")]
    assert _told(tmp_path, _RIGHT + "".join(f"{key}: null\n" for key in further)) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            f"# Where to.\nproviderr: local\n{_RIGHT}",
            "feature_store.yaml:2: providerr: there is no such key (did you mean provider?)",
        ),
        (
            _RIGHT.replace("offline_store:", "offline_stor:"),
            "feature_store.yaml:3: offline_stor: there is no such key (did you mean offline_store?)",
        ),
        (
            _RIGHT.replace("project:", "projct:"),
            "feature_store.yaml:1: projct: there is no such key (did you mean project?)",
        ),
        (
            _RIGHT + "7: local\n",
            f"feature_store.yaml:6: 7: there is no such key; Feast has {', '.join(KEYS)}",
        ),
        (
            _RIGHT + "repo_path: .\n",
            "feature_store.yaml:6: repo_path: there is no such key; remove it, as the stages set it",
        ),
    ],
)
def test_an_unknown_key_is_told_once_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    assert _told(tmp_path, text) == [told]
