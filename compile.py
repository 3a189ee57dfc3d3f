"""Compiles every component, and every pipeline of every project, for this machine and for each profile.

Components are committed as components/<name>/component.yaml, and as pipelines that import their artifacts. Specs of the
project `flights` are committed in pipelines/compiled/, those for its profile `platforms/NAME.yaml` in the folder NAME
there; specs of the other projects differ little from these, and are only held against the rules. Where there are
findings nothing is written; `--check` writes nothing and lists the findings.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gatehouse.errors import GatehouseError
from gatehouse.runtime.images import pin

ROOT = Path(__file__).parent
pin(ROOT / "images" / "digests.lock")  # Before the components are imported, which take their images there.

from gatehouse.kfp.compilation.compiling import broken, compile_project, refuse, stale
from gatehouse.kfp.compilation.component_files import (
    compile_at_addresses,
    compile_component,
    public_components,
)
from gatehouse.project.platforms import Platform, load_platform
from gatehouse.project.project import Project, load_project

COMPILED, COMPONENTS = ROOT / "pipelines" / "compiled", ROOT / "components"
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
    """Compile or check; 0 if everything is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail where a committed spec is stale or breaks a rule")
    parser.add_argument("--release", action="store_true", help="platforms only, with images by digest")
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            new = Path(scratch)
            refuse(_findings(new, options.check, options.release))
            if not options.check:
                for path in sorted(path for path in new.rglob("*") if path.is_file()):
                    of_component = path.is_relative_to(new / COMPONENTS.name)
                    written = (ROOT if of_component else COMPILED) / path.relative_to(new)
                    written.parent.mkdir(parents=True, exist_ok=True)
                    shutil.move(path, written)
                    print(written.relative_to(ROOT))
    except GatehouseError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _findings(root: Path, check: bool, release: bool) -> Iterator[str]:
    """Compile all components, and all projects, the committed one into `root`; gives the findings."""
    for name, component in public_components().items():
        folder = root / COMPONENTS.name / name
        for written in (*compile_component(component, folder), *compile_at_addresses(component, folder)):
            committed = COMPONENTS / name / written.name
            if check and (not committed.is_file() or committed.read_bytes() != written.read_bytes()):
                yield f"components/{name}/{written.name} is not what its component compiles to. Run `make compile`."
    for project, platform in targets(release):
        name = platform.name if platform else ""
        with tempfile.TemporaryDirectory() as scratch:
            written = compile_project(project, (root if project.name == COMMITTED else Path(scratch)) / name, platform)
            if check and project.name == COMMITTED:
                yield from stale(project, written, COMPILED / name)
            yield from broken(written, COMPILED / name, release=release)


if __name__ == "__main__":
    sys.exit(main())
