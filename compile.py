"""Compiles every pipeline of every project into pipelines/compiled/; `--check` compares instead of writing."""

import argparse
import sys
from pathlib import Path

from gatehouse.compilation import check_project, compile_project
from gatehouse.errors import GatehouseError
from gatehouse.images import pin
from gatehouse.project import load_project

ROOT = Path(__file__).parent
COMPILED = ROOT / "pipelines" / "compiled"


def main() -> int:
    """Compile or check; 0 where everything is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="fail where a committed spec is stale or breaks the policy"
    )
    parser.add_argument("--release", action="store_true", help="with --check: images must be named by digest")
    options = parser.parse_args()
    try:
        pin(ROOT / "images" / "digests.lock")
        for folder in sorted(path.parent for path in (ROOT / "pipelines" / "projects").glob("*/project.yaml")):
            project = load_project(folder)
            if options.check:
                check_project(project, COMPILED, options.release)
                print(f"{project.name}: specs are current and keep the policy")
            else:
                for written in compile_project(project, COMPILED):
                    print(written.relative_to(ROOT))
    except GatehouseError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
