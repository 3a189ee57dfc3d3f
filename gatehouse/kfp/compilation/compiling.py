"""Compiles the pipelines of a project to YAML, and compares the files with committed ones."""

import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from gatehouse import __version__
from gatehouse.errors import ConfigurationError
from gatehouse.kfp.compilation.policy import breaches
from gatehouse.kfp.compilation.specification import SpecError, content_of, read_spec
from gatehouse.kfp_api.specs import version_name
from gatehouse.pipelines.catalog import build, names
from gatehouse.project.platforms import THIS_MACHINE, Platform
from gatehouse.project.project import Project
from gatehouse.runtime.plural import counted

STORE = "store"
MONITORING, TRAINING = "monitoring", "training"
"""Monitoring orders the training of the same project for the same platform, so its spec names that version."""


def compile_project(project: Project, folder: Path, platform: Platform | None = None) -> list[Path]:
    """Compile every pipeline of `project` into `folder/<project>-<pipeline>.yaml`; returns the files.

    Without a platform, specs run only through `kfp.local`, and their names say so. Raises ConfigurationError if the
    project's pipelines cannot run on the platform.
    """
    return [compile_pipeline(name, project, folder, platform) for name in names()]


def compile_pipeline(name: str, project: Project, folder: Path, platform: Platform | None = None) -> Path:
    """Compile one pipeline of `project`, as `compile_project` does with each; returns its file.

    Raises ConfigurationError if there is no such pipeline, or it cannot run on the platform.
    """
    from kfp import compiler

    platform = platform or THIS_MACHINE
    if problems := list(platform.problems(project) if platform is not THIS_MACHINE else ()):
        listed = "".join(f"\n  - {problem}" for problem in problems)
        raise ConfigurationError(f"{project.name} cannot run on the platform {platform.name}:{listed}")
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{project.name}-{name}.yaml"
    version = ""
    if name == MONITORING and platform is not THIS_MACHINE:
        with TemporaryDirectory() as scratch:
            version = version_name(compile_pipeline(TRAINING, project, Path(scratch), platform).read_text())
    function = build(name, project, platform, version).function
    # Every driver gets the whole component: descriptions are for its README, and for whoever loads its file.
    for component in function.pipeline_spec.components.values():
        for side in (component.input_definitions, component.output_definitions):
            for field in (*side.parameters.values(), *side.artifacts.values()):
                field.description = ""
    # The spec records what it was compiled from and for, and how long its pods are kept after its end.
    information = function.pipeline_spec.pipeline_info
    stamp = {"project": project.name, "platform": platform.name, "gatehouse": __version__}
    lines = [information.description, "", *(f"{key}: {value}" for key, value in stamp.items())]
    information.description = "\n".join(lines)
    if platform.ttl_hours:
        kubernetes = function.platform_spec.platforms["kubernetes"]
        kubernetes.pipelineConfig.resource_ttl_on_completion = round(platform.ttl_hours * 3600)
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


def stale(project: Project, written: Iterable[Path], folder: Path) -> Iterator[str]:
    """Specs in `folder` that differ from those just compiled, are missing, or belong to no pipeline any more.

    Specs are compared as parsed YAML, without the version of the SDK that wrote them.
    """
    names = set()
    for path in written:
        names.add(path.name)
        committed = folder / path.name
        if not committed.is_file():
            yield f"{committed} is missing"
        elif content_of(read_spec(committed)) != content_of(read_spec(path)):
            yield f"{committed} is not what the code compiles to"
    for path in sorted(folder.glob(f"{project.name}-*.yaml")):
        if path.name not in names and read_spec(path).stamp.get("project") == project.name:
            yield f"{path} is left over: {project.name} has no such pipeline; delete it"


def broken(written: Iterable[Path], folder: Path, *, release: bool = False) -> Iterator[str]:
    """Breaches of the policy in specs just compiled, under their names in `folder`."""
    for path in written:
        yield from (f"{folder / path.name}: {breach}" for breach in breaches(read_spec(path), release=release))


def refuse(findings: Iterable[str]) -> None:
    """Refuse specs with findings. Raises SpecError, listing every finding."""
    if findings := list(findings):
        listed = "".join(f"\n  - {finding}" for finding in findings)
        raise SpecError(f"{counted(len(findings), 'finding')} in the compiled specs:{listed}")
