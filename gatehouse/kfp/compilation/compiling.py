"""Compiles the pipelines of a project to YAML, for a platform or for this machine only."""

import warnings
from pathlib import Path
from typing import Any

from gatehouse import __version__
from gatehouse.errors import ConfigurationError
from gatehouse.pipelines.catalog import build, names
from gatehouse.project.platforms import THIS_MACHINE, Platform
from gatehouse.project.project import Project

STORE = "store"


def compile_project(project: Project, folder: Path, platform: Platform | None = None) -> list[Path]:
    """Compile every pipeline of `project` into `folder/<project>-<pipeline>.yaml`; returns the files.

    Args:
        project: The project.
        folder: Folder for the files.
        platform: Where the specs run. Without one they run only through `kfp.local`, and their names say so.

    Raises:
        ConfigurationError: if the project's pipelines cannot run on the platform.
    """
    return [compile_pipeline(name, project, folder, platform) for name in names()]


def compile_pipeline(name: str, project: Project, folder: Path, platform: Platform | None = None) -> Path:
    """Compile one pipeline of `project`, as `compile_project` does with each; returns its file.

    Raises:
        ConfigurationError: if there is no such pipeline, or it cannot run on the platform.
    """
    from kfp import compiler

    platform = platform or THIS_MACHINE
    if problems := list(platform.problems(project) if platform is not THIS_MACHINE else ()):
        listed = "".join(f"\n  - {problem}" for problem in problems)
        raise ConfigurationError(f"{project.name} cannot run on the platform {platform.name}:{listed}")
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{project.name}-{name}.yaml"
    function = build(name, project, platform).function
    _stamp(function, project, platform)
    full = f"{project.name}-{name}"
    called = {"pipeline_name": full, "pipeline_display_name": f"{project.name} {name}"}
    if platform is THIS_MACHINE:
        called = {
            "pipeline_name": f"{full}-on-this-machine-only",
            "pipeline_display_name": f"{project.name} {name} (on this machine only)",
        }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        compiler.Compiler().compile(
            function, str(target), **called, pipeline_parameters={STORE: platform.store} if platform.store else None
        )
    return target


def _stamp(function: Any, project: Project, platform: Platform) -> None:
    """Record in a pipeline what it was compiled from and for, and how long its pods are kept after its end."""
    information = function.pipeline_spec.pipeline_info
    stamp = {"project": project.name, "platform": platform.name, "gatehouse": __version__}
    lines = [information.description, "", *(f"{key}: {value}" for key, value in stamp.items())]
    information.description = "\n".join(lines)
    if platform.ttl_hours:
        kubernetes = function.platform_spec.platforms["kubernetes"]
        kubernetes.pipelineConfig.resource_ttl_on_completion = round(platform.ttl_hours * 3600)
