"""Compiles every pipeline of every project into pipelines/compiled/, for this machine and for each profile.

Specs of a profile `platforms/NAME.yaml` of a project go to the folder NAME there. `--check` compares instead of
writing, and tells the findings of all projects at once.
"""

import argparse
import sys
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


def targets(release: bool) -> Iterator[tuple[Project, Platform | None, Path]]:
    """Every project for every platform, and the folder of its specs; a release has none for this machine only."""
    for folder in sorted(path.parent for path in (ROOT / "pipelines" / "projects").glob("*/project.yaml")):
        project = load_project(folder)
        if not release:
            yield project, None, COMPILED
        for profile in sorted((folder / "platforms").glob("*.yaml")):
            platform = load_platform(profile)
            yield project, platform, COMPILED / platform.name


def main() -> int:
    """Compile, check or compare; 0 where everything is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail where a committed spec is stale or breaks a rule")
    parser.add_argument("--release", action="store_true", help="platforms only, with images by digest")
    parser.add_argument("--backend-version", default="", help="refuse what the KFP backend of this version ignores")
    parser.add_argument("--diff", type=Path, help="say what changed since this file or folder, and nothing else")
    options = parser.parse_args()
    try:
        if options.diff:
            print(
                "\n".join(compare(options.diff, COMPILED / options.diff.name if options.diff.is_file() else COMPILED))
            )
            return 0
        pin(ROOT / "images" / "digests.lock")
        refuse(_findings(options.check, options.release, options.backend_version))
    except GatehouseError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _findings(check: bool, release: bool, backend: str) -> Iterator[str]:
    """What is wrong with the specs of all projects; they are compiled first, unless they are only checked."""
    for project, platform, folder in targets(release):
        if check:
            yield from findings(project, folder, platform, release=release, backend=backend)
        else:
            for path in compile_project(project, folder, platform):
                print(path.relative_to(ROOT))
                yield from (f"{path}: {found}" for found in problems(read_spec(path), release=release, backend=backend))


if __name__ == "__main__":
    sys.exit(main())
