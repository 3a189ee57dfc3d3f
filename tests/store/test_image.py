"""Each component runs in an image whose lock has all that it imports, in the versions that are in the keys."""

import re
from collections.abc import Iterator

import pytest

from gatehouse.runtime.images import LOCKS
from gatehouse.store.code import distribution_of, packages_of
from gatehouse.store.image import image_names, modules_of
from gatehouse.store.stage import declared_stages
from tests.source_tree import ROOT

DISTRIBUTIONS = {
    "adbc_driver_manager": "adbc-driver-manager",
    "google": "google-cloud-storage",
    "kubeflow": "kubeflow-training",
    "openlineage": "openlineage-python",
    "ruamel": "ruamel-yaml",
}
DISTRIBUTIONS |= {"mlflow": "mlflow-skinny", "pynvml": "nvidia-ml-py", "sklearn": "scikit-learn"}
"""Distributions of packages that carriers import, and that no code digest names."""

every_component = pytest.mark.parametrize("component", image_names())


def _pinned(*locks: str) -> dict[str, str]:
    text = "".join((ROOT / "locks" / f"{lock}.lock").read_text() for lock in locks)
    return {name.lower(): version for name, version in re.findall(r"^([\w.-]+)==([^\s\\]+)", text, re.MULTILINE)}


def _normal(package: str) -> str:
    return DISTRIBUTIONS.get(package, distribution_of(package)).lower().replace("_", "-")


@every_component
def test_its_image_and_the_lock_of_that_have_what_a_component_imports(component: str) -> None:
    name = image_names()[component]
    packages = packages_of(modules_of(component))
    assert packages and {_normal(package) for package in packages - {"kfp"}} - _pinned(*LOCKS[name]).keys() == set()


def _differing(component: str) -> Iterator[str]:
    name = image_names()[component]
    laptop, inside = (_pinned(*locks) for locks in (("dev", "torch", "sketches"), LOCKS[name]))
    memoised = [stage for stage in declared_stages().values() if stage.declared.effects.memo]
    own = [stage for stage in memoised if stage.function.__module__ in modules_of(component)]
    for package in {
        distribution.lower().replace("_", "-") for stage in own for distribution in stage.sources().distributions
    }:
        if package != "python" and laptop.get(package) != inside.get(package):
            yield f"{package}: {laptop.get(package)} in dev.lock, {inside.get(package)} in the image {name}"


def test_what_is_in_a_key_has_one_version_on_a_laptop_and_in_the_image() -> None:
    assert [problem for component in image_names() for problem in _differing(component)] == []


def test_images_are_small() -> None:
    control, data, training = (_pinned(*LOCKS[name]).keys() for name in ("control", "data", "training"))
    assert not {"torch", "feast", "xgboost-cpu", "tfx-bsl", "pandas", "scipy", "kfp-pipeline-spec"} & control
    assert "feast" in data and not {"torch", "xgboost-cpu", "mlflow-skinny"} & data
    assert "torch" in training and not {"feast", "tfx-bsl"} & training
    assert "tensorflow" not in control | data | training
    assert not {name for name in control | data | training if name.startswith(("nvidia-c", "triton"))}


def test_duckdb_and_redis_come_with_what_they_import_without_requiring_it_of_every_python() -> None:
    for name, locks in LOCKS.items():
        pinned = _pinned(*locks)
        assert "pytz" in pinned, name
        assert ("redis" in pinned) == ("async-timeout" in pinned), name


def test_the_two_images_for_training_differ_in_the_builds_of_torch_and_xgboost_alone() -> None:
    cpu, gpu = _pinned(*LOCKS["training"]), _pinned(*LOCKS["training-gpu"])
    assert gpu["xgboost"] == cpu.pop("xgboost-cpu") and cpu.items() <= gpu.items()
    more = gpu.keys() - cpu.keys() - {"xgboost"}
    assert "nvidia-nccl-cu13" in more and all(name.startswith(("cuda-", "nvidia-", "triton")) for name in more)


def test_pages_of_stages_count() -> None:
    assert "gatehouse.data.validation.report" in modules_of("snapshot")
