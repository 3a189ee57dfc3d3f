"""Checks committed specs against the code, the policy, and the oldest backend that must run them."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gatehouse.kfp.compilation.backends import unsupported
from gatehouse.kfp.compilation.policy import breaches
from gatehouse.kfp.compilation.specification import Compiled, SpecError, read_spec
from gatehouse.project.project import Project


def stale(project: Project, written: Iterable[Path], folder: Path) -> Iterator[str]:
    """Differences between `folder` and the specs just compiled: different, missing and leftover specs.

    Specs are compared as parsed YAML, without the version of the SDK that wrote them.
    """
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
    """What is wrong with specs that were just compiled, under their names in `folder`, one sentence each.

    Args:
        written: The compiled files.
        folder: The folder that they are for.
        release: Whether they are to be released: then the rules of a release apply too.
        backend: The version of the KFP backend that is to run them, and must ignore nothing; empty for any.
    """
    for path in written:
        compiled = read_spec(path)
        ignored = unsupported(compiled, backend) if backend else ()
        yield from (f"{folder / path.name}: {found}" for found in (*breaches(compiled, release=release), *ignored))


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
