"""Compiles every pipeline of every project, for this machine and for each profile, and keeps those of one project.

Specs of the project `flights` are committed in pipelines/compiled/, those for its profile `platforms/NAME.yaml` in the
folder NAME there. Specs of the other projects differ little from these: they are only held against the rules.
Where there are findings nothing is written. `--check` and `--diff` write nothing but what they found, that of all
projects at once.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gatehouse.errors import GatehouseError
from gatehouse.kfp.compilation.committed import broken, refuse, stale
from gatehouse.kfp.compilation.compiling import compile_project
from gatehouse.kfp.compilation.difference import compare
from gatehouse.project.platforms import Platform, load_platform
from gatehouse.project.project import Project, load_project
from gatehouse.runtime.images import pin

ROOT = Path(__file__).parent
COMPILED = ROOT / "pipelines" / "compiled"
COMMITTED = "flights"


def targets(release: bool) -> Iterator[tuple[Project, Platform | None]]:
    """Every project for every platform; a release has no specs for this machine only."""
    for folder in sorted(path.parent for path in (ROOT / "pipelines" / "projects").glob("*/project.yaml")):
        project = load_project(folder)
        if not release:
            yield project, None
        for profile in sorted((folder / "platforms").glob("*.yaml")):
            yield project, load_platform(profile)


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
        with tempfile.TemporaryDirectory() as folder:
            new = Path(folder)
            found = list(_compiled(new, options.check, **rules))
            if options.diff:
                print("\n".join(_changes(options.diff, new, options.release)) or "nothing changed")
            refuse(found)
            if not (options.check or options.diff):
                for path in sorted(new.rglob("*.yaml")):
                    written = COMPILED / path.relative_to(new)
                    written.parent.mkdir(parents=True, exist_ok=True)
                    shutil.move(path, written)
                    print(written.relative_to(ROOT))
    except GatehouseError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _compiled(root: Path, check: bool, release: bool, backend: str) -> Iterator[str]:
    """Compile all projects, the committed one into `root`; gives what is wrong with their specs."""
    for project, platform in targets(release):
        name = platform.name if platform else ""
        with tempfile.TemporaryDirectory() as scratch:
            written = compile_project(project, (root if project.name == COMMITTED else Path(scratch)) / name, platform)
            if check and project.name == COMMITTED:
                yield from stale(project, written, COMPILED / name)
            yield from broken(written, COMPILED / name, release=release, backend=backend)


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
