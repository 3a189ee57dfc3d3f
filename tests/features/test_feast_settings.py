"""Mistakes in Feast's settings of a project, each with its line."""

import re
from pathlib import Path

import pytest

from gatehouse.features.definitions.settings import settings_problems

SETTINGS = """project: shop
registry: registry.db
offline_store:
  type: gatehouse.features.point_in_time.offline_store.AsofOfflineStore
online_store: {type: sqlite}
"""


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("entity_key_serialization_version: 3", ""),
        ("entity_key_serialization_version: 2", "entity_key_serialization_version"),
        ("provider: own.module.Provider", ""),
        ("project: re-turns", "project"),
        ("online_store: {type: redis, redis_type: redis_cluster}", "online_store.redis_type"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, line: str, key: str) -> None:
    name = line.partition(":")[0]
    lines = [row for row in SETTINGS.splitlines() if not row.startswith(f"{name}:")] + [line]
    (tmp_path / "feature_store.yaml").write_text("\n".join(lines) + "\n")
    problems = list(settings_problems(tmp_path))
    assert len(problems) == bool(key)
    assert all(re.match(rf"feature_store\.yaml(:{len(lines)})?: {key}: ", problem) for problem in problems)
