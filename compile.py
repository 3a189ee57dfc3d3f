"""Compiles every pipeline of every project into pipelines/compiled/, for this machine and for each profile.

Specs of a profile `platforms/NAME.yaml` of a project go to the folder NAME there. `--check` and `--diff` write
nothing but what they found, that of all projects at once.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gatehouse.compilation.committed import findings, problems, refuse
from gatehouse.compilation.compiling import compile_project
from gatehouse.compilation.difference import compare
from gatehouse.compilation.specification import read_spec
from gatehouse.errors import GatehouseError
from gatehouse.images import pin
from gatehouse.platforms import Platform, load_platform
from gatehouse.project import Project, load_project

ROOT = Path(__file__).parent
COMPILED = ROOT / "pipelines" / "compiled"


def targets(root: Path, release: bool) -> Iterator[tuple[Project, Platform | None, Path]]:
    """Every project for every platform, and the folder of its specs; a release has none for this machine only."""
    for folder in sorted(path.parent for path in (ROOT / "pipelines" / "projects").glob("*/project.yaml")):
        project = load_project(folder)
        if not release:
            yield project, None, root
        for profile in sorted((folder / "platforms").glob("*.yaml")):
            platform = load_platform(profile)
            yield project, platform, root / platform.name


def main() -> int:
    """Compile, check or compare; 0 where everything is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail where a committed spec is stale or breaks a rule")
    parser.add_argument("--release", action="store_true", help="platforms only, with images by digest")
    parser.add_argument("--backend-version", default="", help="refuse what the KFP backend of this version ignores")
    parser.add_argument("--diff", type=Path, help="write nothing: say what changed since this file or folder")
    options = parser.parse_args()
    rules = {"release": options.release, "backend": options.backend_version}
    try:
        pin(ROOT / "images" / "digests.lock")
        if options.diff:
            with tempfile.TemporaryDirectory() as folder:
                found = list(_compiled(Path(folder), **rules))
                print("\n".join(_changes(options.diff, Path(folder), options.release)) or "nothing changed")
            refuse(found)
        if options.check:
            refuse(_checked(**rules))
        elif not options.diff:
            refuse(_compiled(COMPILED, **rules))
    except GatehouseError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _checked(release: bool, backend: str) -> Iterator[str]:
    """What is wrong with the committed specs of all projects."""
    for project, platform, folder in targets(COMPILED, release):
        yield from findings(project, folder, platform, release=release, backend=backend)


def _compiled(root: Path, release: bool, backend: str) -> Iterator[str]:
    """Compile all projects into a folder; gives what is wrong with their specs."""
    for project, platform, folder in targets(root, release):
        for path in compile_project(project, folder, platform):
            if root == COMPILED:
                print(path.relative_to(ROOT))
            name = COMPILED / path.relative_to(root)
            yield from (f"{name}: {found}" for found in problems(read_spec(path), release=release, backend=backend))


def _changes(old: Path, new: Path, release: bool) -> Iterator[str]:
    """What changed since a compiled file, or since a folder of them with those of platforms below it.

    Of a release only the platforms are compared: it has no specs for this machine.
    """
    if old.is_file():
        folder = new / old.parent.name
        yield from compare(old, (folder if folder.is_dir() else new) / old.name)
        return
    if not release or not old.exists():  # `compare` raises an error if the old file does not exist.
        yield from compare(old, new)
    before, after = ({path.parent.name for path in folder.glob("*/*.yaml")} for folder in (old, new))
    for name in sorted(before | after):
        if name in before & after:
            yield from (f"{name}: {line}" for line in compare(old / name, new / name))
        else:
            yield f"{'+' if name in after else '-'} {name}/"


if __name__ == "__main__":
    sys.exit(main())
