"""Chooses the image of a stage's task: the first that has everything that its stages and their pages import."""

from functools import cache
from typing import Any

from gatehouse.errors import ConfigurationError
from gatehouse.runtime.images import PACKAGES, image
from gatehouse.store.code import closure_of, packages_of
from gatehouse.store.stage import Stage, declared_stages, in_task


@cache
def image_of(stage: str) -> str:
    """The image of a stage, as components give it to KFP."""
    return image(image_name(declared_stages()[stage]))


def image_name(stage: Stage[Any, Any]) -> str:
    """Name of the image of a stage. Raises ConfigurationError if no image holds what it imports."""
    packages = packages_of(modules_of(stage))
    for name, contents in PACKAGES.items():
        if packages <= contents:
            return name
    missing = {name: ", ".join(sorted(packages - contents)) for name, contents in PACKAGES.items()}
    raise ConfigurationError(
        f"Stage {stage.name}: no image holds all that it imports. "
        f"{'; '.join(f'{name} lacks {what}' for name, what in missing.items())}. Add it to an image: its extra in "
        "pyproject.toml, `make lock`, and PACKAGES in gatehouse/runtime/images.py."
    )


def modules_of(stage: Stage[Any, Any]) -> frozenset[str]:
    """Dotted names of our modules that the pod of a stage's task can load."""
    stages = in_task(stage)
    entries = [member.function.__module__ for member in stages]
    entries += [page.partition(":")[0] for member in stages for page in member.declared.pages.values()]

    def runs_elsewhere(module: str) -> bool:  # KFP interfaces, and the statistics for workers of Apache Beam.
        return module.startswith("gatehouse.components.") or module == "gatehouse.data.statistics.beam"

    return frozenset().union(*(closure_of(entry, runs_elsewhere) for entry in entries))
