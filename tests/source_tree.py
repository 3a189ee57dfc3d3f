"""The sources of this repository as syntax trees, for the tests that hold them against the rules of the house."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parent.parent
COMPONENTS = ROOT / "components"
_FOLDERS = ("components", "pipelines", "feature_repo", "gatehouse", "tests", "benchmarks", "images", "docs")


@dataclass(frozen=True)
class Source:
    """One Python file."""

    path: Path

    @property
    def name(self) -> str:
        """Its path from the root of the repository."""
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree."""
        return ast.parse(self.path.read_bytes(), self.name)

    def imports(self) -> Iterator[tuple[str, int]]:
        """Dotted name and line of everything that it imports, inside functions too."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((alias.name, node.lineno) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                yield from ((f"{module}.{alias.name}".replace("..", "."), node.lineno) for alias in node.names)


@cache
def sources(*folders: str) -> tuple[Source, ...]:
    """Every Python file of these folders, by default of the whole repository; links are not followed."""
    if folders:
        result = tuple(source for source in sources() if source.name.startswith(tuple(f"{name}/" for name in folders)))
        assert result, f"no Python file in {folders}"
        return result
    paths = [*ROOT.glob("*.py"), *(path for folder in _FOLDERS for path in (ROOT / folder).rglob("*.py"))]
    # rglob follows links on Python 3.11: each file is taken where it really lies.
    return tuple(map(Source, sorted({path.resolve() for path in paths if "__pycache__" not in path.parts})))
