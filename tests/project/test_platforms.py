"""Platform profiles: what they say, what they refuse, and what a stage's pods get of them."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

import gatehouse
from gatehouse.data.sources.catalog import parse_source
from gatehouse.errors import ConfigurationError
from gatehouse.project.platforms import Platform, load_platform
from gatehouse.project.project import Project, load_project

EXAMPLE = Path(gatehouse.__file__).parent / "pipelines" / "projects" / "flights"
LEAST = {"name": "here", "store": "s3://bucket/gatehouse"}
MOUNTED = {"pods": {"volumes": [{"claim": "shared", "path": "/mnt/shared"}]}}


@pytest.fixture(scope="module")
def project() -> Project:
    return load_project(EXAMPLE)


def _load(folder: Path, **content: Any) -> Platform:
    path = folder / "here.yaml"
    path.write_text(yaml.safe_dump(LEAST | content))
    return load_platform(path)


def test_the_profile_of_the_example_fits_its_project(project: Project) -> None:
    platform = load_platform(EXAMPLE / "platforms" / "cluster.yaml")
    assert list(platform.problems(project)) == []
    assert platform.plugins_input == {"mlflow": {"experiment_name": "flights"}}


def test_a_stage_gets_its_own_over_what_every_pod_gets(tmp_path: Path) -> None:
    taint = {"key": "gpu", "effect": "NoSchedule"}
    general = {"labels": {"team": "a"}, "node_selector": {"pool": "general"}, "priority_class": "usual"}
    own = {"node_selector": {"pool": "gpu"}, "tolerations": [taint], "memory": "64Gi", "priority_class": "urgent"}
    platform = _load(tmp_path, pods=general, stages={"train": own}, queue="ours")
    train, split = platform.of("train"), platform.of("split")
    assert (train.memory, train.node_selector, train.tolerations[0].key) == ("64Gi", {"pool": "gpu"}, "gpu")
    assert (split.memory, split.node_selector, split.tolerations) == ("", {"pool": "general"}, ())
    queued = {"team": "a", "kueue.x-k8s.io/queue-name": "ours"}
    assert train.labels == queued | {"kueue.x-k8s.io/priority-class": "urgent"}
    assert split.labels == queued | {"kueue.x-k8s.io/priority-class": "usual"}


@pytest.mark.parametrize(
    ("content", "key"),
    [
        ({"store": ".gatehouse/store"}, "store"),
        ({"store": "file:///tmp/store"}, "store"),
        ({"store": "/mnt/shared/../store", **MOUNTED}, "store"),
        ({"store": "gcs://x"}, "store"),
        ({"stages": {"trian": {}}}, "stages"),
        ({"stages": {"train": {"memory": "0G"}}}, "stages.train.memory"),
        ({"stages": {"train": {"cpu": 0}}}, "stages.train.cpu"),
        ({"images": {"gatehouse": "x"}}, "images"),
        ({"endpoint": "kfp:8888"}, "endpoint"),
        ({"endpoint": "http://me:hunter2@kfp"}, "endpoint"),
        ({"pods": {"labels": {"team": "a b"}}}, "pods.labels.team"),
        ({"pods": {"node_selector": {"-x": "y"}}}, "pods.node_selector.-x"),
        ({"pods": {"annotations": {"note": "é"}}}, "pods.annotations.note"),
        ({"pods": {"volumes": [{"claim": "a", "path": "/a", "read_only": True}]}}, "pods.volumes"),
        ({"node_selector": {}}, "node_selector"),
    ],
)
def test_a_profile_that_would_not_run_is_refused(tmp_path: Path, content: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"here\.yaml:\d+: {key}: ") as caught:
        _load(tmp_path, **content)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("place", "reached"),
    [
        ("gs://bucket/raw", True),
        ("/mnt/shared/raw", True),
        ("sqlite:////mnt/shared/shop.db", True),
        ("sqlite:///shop.db", False),
        ("../raw", False),
        ("/mnt/other", False),
    ],
)
def test_a_source_lies_where_every_pod_reaches_it(project: Project, tmp_path: Path, place: str, reached: bool) -> None:
    platform = _load(tmp_path, **MOUNTED)
    table = {"columns": {"id": "int64", "at": "timestamp"}, "event_time": "at"}
    arguments = {"kind": "files", "path": place, "tables": {"orders": table | {"member": "orders.csv"}}}
    if place.startswith("sqlite"):
        arguments = {"kind": "sql", "url": place, "tables": {"orders": table | {"order_by": ["id"], "table": "orders"}}}
    source = parse_source({"name": "shop"} | arguments)
    moved = dataclasses.replace(project, file=project.file.model_copy(update={"source": source}))
    assert (not list(platform.problems(moved))) == reached
