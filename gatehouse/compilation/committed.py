"""Checks committed specs against the code, the policy, and the oldest backend that must run them."""

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gatehouse.compilation.backends import unsupported
from gatehouse.compilation.compiling import compile_project
from gatehouse.compilation.policy import breaches
from gatehouse.compilation.specification import Compiled, SpecError, read_spec
from gatehouse.platforms import Platform
from gatehouse.project import Project


def findings(
    project: Project, folder: Path, platform: Platform | None = None, *, release: bool = False, backend: str = ""
) -> Iterator[str]:
    """Problems of the committed specs of a project in `folder`, one sentence each.

    Specs are compared as parsed YAML, without the version of the SDK that wrote them.

    Args:
        project: The project whose specs are checked.
        folder: The folder of the committed specs.
        platform: The platform they were compiled for; None for this machine.
        release: Whether they are to be released: then the rules of a release apply too.
        backend: The version of the KFP backend that is to run them; empty for any.
    """
    with tempfile.TemporaryDirectory() as directory:
        written = compile_project(project, Path(directory), platform)
        yield from stale(project, written, folder)
        yield from broken(written, folder, release=release, backend=backend)


def stale(project: Project, written: Iterable[Path], folder: Path) -> Iterator[str]:
    """Differences between `folder` and the specs just compiled: different, missing and leftover specs."""
    names = set()
    for path in written:
        names.add(path.name)
        committed = folder / path.name
        if not committed.is_file():
            yield f"{committed} is missing"
        elif _content(read_spec(committed)) != _content(read_spec(path)):
            yield f"{committed} is not what the code compiles to"
    for path in sorted(folder.glob(f"{project.name}-*.yaml")):
        if path.name not in names and read_spec(path).stamp.get("project") == project.name:
            yield f"{path} is left over: {project.name} has no such pipeline; delete it"


def broken(written: Iterable[Path], folder: Path, *, release: bool = False, backend: str = "") -> Iterator[str]:
    """Problems of specs that were just compiled, under their names in `folder`."""
    for path in written:
        compiled = read_spec(path)
        yield from (f"{folder / path.name}: {found}" for found in problems(compiled, release=release, backend=backend))


def problems(compiled: Compiled, *, release: bool = False, backend: str = "") -> Iterator[str]:
    """Breaches of the policy in a compiled spec, and features that the given KFP backend would ignore."""
    yield from breaches(compiled, release=release)
    if backend:
        yield from unsupported(compiled, backend)


def refuse(found: Iterable[str]) -> None:
    """Raise an error if there are findings.

    Raises:
        SpecError: listing every one of them.
    """
    listed = [f"\n  - {each}" for each in found]
    if listed:
        raise SpecError(f"{len(listed)} finding{'s' * (len(listed) > 1)} in the compiled specs:{''.join(listed)}")


def _content(compiled: Compiled) -> list[dict[str, Any]]:
    return [{key: value for key, value in compiled.spec.items() if key != "sdkVersion"}, compiled.platform]
