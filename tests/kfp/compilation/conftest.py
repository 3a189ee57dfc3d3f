"""The example's pipelines, compiled once: for this machine, and for the platform that it has a profile of."""

from pathlib import Path

import pytest

import gatehouse
from gatehouse.kfp.compilation.compiling import compile_project
from gatehouse.project.platforms import Platform, load_platform
from gatehouse.project.project import Project, load_project

EXAMPLE = Path(gatehouse.__file__).parent / "pipelines" / "projects" / "flights"


@pytest.fixture(scope="session")
def flights() -> Project:
    return load_project(EXAMPLE)


@pytest.fixture(scope="session")
def platform() -> Platform:
    """The example's profile, with digests in the place of its zeros."""
    profile = load_platform(EXAMPLE / "platforms" / "cluster.yaml")
    images = {name: reference.replace("0" * 64, "1" * 64) for name, reference in profile.images.items()}
    return profile.model_copy(update={"images": images})


@pytest.fixture(scope="session")
def compiled(flights: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For this machine."""
    folder = tmp_path_factory.mktemp("compiled")
    compile_project(flights, folder)
    return folder


@pytest.fixture(scope="session")
def released(flights: Project, platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For the platform of the example's profile."""
    folder = tmp_path_factory.mktemp("released")
    compile_project(flights, folder, platform)
    return folder
