"""Each stage runs in an image whose lock has all that it imports, in the versions that are in its key."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.runtime.images import LOCKS, PACKAGES
from gatehouse.store.code import distribution_of, packages_of
from gatehouse.store.image import image_name, modules_of
from gatehouse.store.stage import STAGES, Stage, declared_stages
from tests.source_tree import ROOT

DISTRIBUTIONS = {
    "adbc_driver_manager": "adbc-driver-manager",
    "google": "google-cloud-storage",
    "ruamel": "ruamel-yaml",
}
DISTRIBUTIONS |= {"grpc": "grpcio", "mlflow": "mlflow-skinny", "pynvml": "nvidia-ml-py", "sklearn": "scikit-learn"}
"""Distributions of packages that carriers import, and that no code digest names."""

every_stage = pytest.mark.parametrize("stage", declared_stages().values(), ids=lambda stage: stage.name)


def _pinned(*locks: str) -> dict[str, str]:
    text = "".join((ROOT / "locks" / f"{lock}.lock").read_text() for lock in locks)
    return {name.lower(): version for name, version in re.findall(r"^([\w.-]+)==([^\s\\]+)", text, re.MULTILINE)}


def _normal(package: str) -> str:
    return DISTRIBUTIONS.get(package, distribution_of(package)).lower().replace("_", "-")


@pytest.mark.parametrize("name", PACKAGES)
def test_the_lock_of_an_image_has_what_it_is_said_to_hold(name: str) -> None:
    assert {_normal(package) for package in PACKAGES[name]} - _pinned(*LOCKS[name]).keys() == set()


@every_stage
def test_the_lock_of_its_image_has_what_a_stage_imports(stage: Stage[Any, Any]) -> None:
    name = image_name(stage)
    imported = {_normal(package) for package in packages_of(modules_of(stage))}
    assert imported and imported - _pinned(*LOCKS[name]).keys() == set()


def _differing(stage: Stage[Any, Any]) -> Iterator[str]:
    name = image_name(stage)
    laptop, inside = (_pinned(*locks) for locks in (("dev", "torch", "sketches"), LOCKS[name]))
    for package in {distribution.lower().replace("_", "-") for distribution in stage.sources().distributions}:
        if package != "python" and laptop.get(package) != inside.get(package):
            yield f"{package}: {laptop.get(package)} in dev.lock, {inside.get(package)} in the image {name}"


def test_what_is_in_a_key_has_one_version_on_a_laptop_and_in_the_image() -> None:
    memoised = [stage for stage in declared_stages().values() if stage.declared.effects.memo]
    assert len(memoised) > 10
    assert [problem for stage in memoised for problem in _differing(stage)] == []


def test_images_are_small() -> None:
    control, data, training = (_pinned(*LOCKS[name]).keys() for name in ("control", "data", "training"))
    assert not {"torch", "feast", "xgboost-cpu", "tfx-bsl", "pandas", "scipy", "kfp-pipeline-spec"} & control
    assert "feast" in data and not {"torch", "xgboost-cpu", "mlflow-skinny"} & data
    assert "torch" in training and not {"feast", "tfx-bsl"} & training
    assert not {"tensorflow", "apache-beam"} & (control | data | training)
    assert not {name for name in control | data | training if name.startswith(("nvidia-c", "triton"))}


def test_duckdb_and_redis_come_with_what_they_import_without_requiring_it_of_every_python() -> None:
    for name, locks in LOCKS.items():
        pinned = _pinned(*locks)
        assert "pytz" in pinned, name
        assert ("redis" in pinned) == ("async-timeout" in pinned), name


def test_the_two_images_for_training_differ_in_the_build_of_torch_alone() -> None:
    cpu, gpu = _pinned(*LOCKS["training"]), _pinned(*LOCKS["training-gpu"])
    assert cpu.items() <= gpu.items()
    more = gpu.keys() - cpu.keys()
    assert "nvidia-nccl-cu13" in more and all(name.startswith(("cuda-", "nvidia-", "triton")) for name in more)


def test_stages_are_where_they_belong() -> None:
    images = {name: image_name(stage) for name, stage in declared_stages().items()}
    some = ("alert", "promote", "retrieve_training_set", "train")
    assert [images[name] for name in some] == ["control", "control", "data", "training"]


def test_a_page_counts_and_an_image_that_lacks_something_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    alert = declared_stages()["alert"]
    page = "gatehouse.training.trainer:page"
    drawn = Stage(replace(alert.declared, pages={"kind": page}), alert.function)
    assert image_name(alert) == "control"
    monkeypatch.setitem(STAGES, "alert", drawn)
    assert image_name(drawn) == "training"
    for name in ("training", "training-gpu"):
        monkeypatch.setitem(PACKAGES, name, PACKAGES["control"])
    with pytest.raises(ConfigurationError, match=r"Stage alert: no image holds .* training lacks .*torch"):
        image_name(drawn)
