"""Code digests: which sources decide a stage's result, found without importing them.

A stage's result is decided by its module and by all modules of `gatehouse` that it imports, directly or through others,
except for those in the rooms of `CARRIERS`. Each module counts as its syntax tree, without comments and docstrings. A
code digest covers these trees, and the versions of the distributions that the modules import, as installed where the
stage runs: memo keys hold it.
"""

import ast
import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import gatehouse
from gatehouse.store.canonical import digest_of, sha256_bytes

CARRIERS = {
    "errors": "Errors end a run. No artifact holds their words.",
    "runtime": "Limits and cleans up a process.",
    "configuration": "Reads files; the values that it reads are in the request, and so in the key.",
    "kfp_api": "Asks Kubeflow Pipelines about runs and schedules.",
    "store": "Stores bytes under their digest and reads them back verified.",
    "reports": "Draws pages.",
    "tracking": "Records what happened, after it happened.",
    "pieces": "Runs pieces of a stage somewhere; the function of a piece is in the stage's room.",
    "launchers": "Runs the training program somewhere and verifies that it ended well.",
}
"""Rooms whose code is in no digest, each with the reason. The layers of import-linter keep them below the deciding
rooms, so they import nothing that decides."""

DECIDING = frozenset(
    {
        "gatehouse.configuration.times",  # the windows of snapshots
        "gatehouse.reports.format",  # verdicts and reasons hold numbers as it writes them
        "gatehouse.runtime.plural",
        "gatehouse.store.canonical",
        "gatehouse.store.database",  # the settings of DuckDB
        "gatehouse.store.identity",
        "gatehouse.tracking.metrics_file",  # pruning reads the metrics that it holds
    }
)
"""Modules in the rooms of `CARRIERS` that decide nevertheless: artifacts hold what they write or measure."""

UNCOUNTED = frozenset({"pydantic", "pydantic_core"})
"""Packages whose version is in no digest: pydantic validates requests, whose values are in the key."""
DISTRIBUTIONS = {"google": "protobuf", "xgboost": "xgboost-cpu", "yaml": "PyYAML"}
"""Distributions whose name differs from the imported package."""
_ROOT = Path(gatehouse.__file__).parent
_DOTTED = re.compile(r"gatehouse(\.\w+)+")
_MOST_CACHED = 20_000


@dataclass(frozen=True)
class Code:
    """The code that decides a stage's result.

    `modules` holds the digest of the syntax tree of each deciding module, by dotted name; `distributions` the installed
    version of each distribution that these import. No result can depend on one that is not installed: it is left out.
    """

    modules: dict[str, str]
    distributions: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """The code as JSON."""
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        return {"modules": self.modules, "distributions": self.distributions | {"python": python}}

    @property
    def source(self) -> str:
        """SHA-256 of the sources alone, as 64 hexadecimal digits; independent of what is installed."""
        return digest_of({"modules": self.modules})

    @property
    def digest(self) -> str:
        """SHA-256 of the sources and of what is installed here, as 64 hexadecimal digits."""
        return digest_of({"source": self.source, "distributions": self.to_json()["distributions"]})


def code_of(module: str) -> Code:
    """The code that decides what `module`, a stage's module or a program, computes."""
    closure = closure_of(module, carries)
    distributions = {distribution_of(package) for package in packages_of(closure) - UNCOUNTED}
    return Code(
        modules={name: _facts(name).digest for name in sorted(closure)},
        distributions={name: version for name in sorted(distributions) if (version := _version(name))},
    )


def code_digest(module: str) -> str:
    """SHA-256 over everything that decides what `module` computes, as 64 hexadecimal digits."""
    return code_of(module).digest


def carries(module: str) -> bool:
    """Whether the code of one of our modules is in no digest."""
    return module.split(".")[1:2] != [] and module.split(".")[1] in CARRIERS and module not in DECIDING


def closure_of(module: str, left_out: Callable[[str], bool]) -> frozenset[str]:
    """Dotted names of our modules that running `module` can load, including `module`.

    Imports inside functions count; blocks for type checkers do not. A text that is the dotted name of a module also
    counts, because programs that run as separate processes are named this way. Modules for which `left_out` is true are
    left out, with their imports.
    """
    closure: set[str] = set()
    pending = [module]
    while pending:
        name = pending.pop()
        if name in closure or source_of(name) is None or left_out(name):
            continue
        closure.add(name)
        pending.extend(imports_of(name))
    _write_cache()
    return frozenset(closure)


def text_digests(modules: Iterable[str]) -> dict[str, str]:
    """Digest of the text of each module, by name; for pages, where each word counts."""
    sources = {name: source_of(name) for name in sorted(modules)}
    return {name: sha256_bytes(path.read_bytes()) for name, path in sources.items() if path is not None}


def packages_of(modules: Iterable[str]) -> frozenset[str]:
    """External packages that these modules import, also inside functions."""
    return frozenset(package for name in modules for package in _facts(name).packages)


@cache
def imports_of(module: str) -> frozenset[str]:
    """Dotted names of our modules that `module` imports, and of the packages that contain them."""
    imports = set()
    for name in _facts(module).names:
        parts = name.split(".")
        imports |= {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
    return frozenset(name for name in imports if source_of(name) is not None)


def distribution_of(package: str) -> str:
    """The distribution that provides an imported package."""
    return DISTRIBUTIONS.get(package, package)


@cache
def source_of(module: str) -> Path | None:
    """The source file of one of our modules, or None if the name is no module (an attribute, another package)."""
    if module.split(".")[0] != "gatehouse":
        return None
    base = _ROOT.joinpath(*module.split(".")[1:])
    return next((path for path in (base / "__init__.py", base.with_suffix(".py")) if path.is_file()), None)


@cache
def _version(distribution: str) -> str:
    try:
        # The local label of a build (`+cpu`) is dropped: it names the origin of a wheel, not its code.
        return metadata.version(distribution).split("+")[0]
    except metadata.PackageNotFoundError:
        return ""


@dataclass(frozen=True)
class SourceFacts:
    """The facts of one source file that a digest needs.

    `digest` is the SHA-256 of the syntax tree, without comments, docstrings and blocks for type checkers. `names` are
    dotted names of ours that it imports or has as a text, some of them attributes; `packages` the external packages
    that it imports, without the standard library.
    """

    digest: str
    names: tuple[str, ...]
    packages: tuple[str, ...]


class _Reduced(ast.NodeTransformer):
    """Removes what never runs: docstrings and other lone constants, and blocks for type checkers."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return [self.visit(statement) for statement in node.orelse]
        return self.generic_visit(node)


def analyse(source: bytes) -> SourceFacts:
    """The facts of a source file. Raises SyntaxError if it is invalid."""
    tree = _Reduced().visit(ast.parse(source))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _DOTTED.fullmatch(node.value):
            imported.add(node.value)
    names = {name for name in imported if name.split(".")[0] == "gatehouse"}
    packages = {name.split(".")[0] for name in imported - names} - sys.stdlib_module_names
    digest = hashlib.sha256(ast.dump(tree, annotate_fields=False).encode()).hexdigest()
    return SourceFacts(digest, tuple(sorted(names)), tuple(sorted(packages)))


_cached = 0


@cache
def _facts(module: str) -> SourceFacts:
    """The facts of one of our modules, from the user's cache if the same bytes were read before.

    Parsing all sources takes a second, which a run that finds nothing new would notice.
    """
    path = source_of(module)
    assert path is not None, module
    source = path.read_bytes()
    key, cached = sha256_bytes(source), _read_cache()
    if key not in cached:
        cached[key] = analyse(source)
    return cached[key]


@cache
def _cache_file() -> Path:
    """One file per version of this module, because another version may find other facts."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "gatehouse" / f"sources-{sha256_bytes(Path(__file__).read_bytes())[:16]}.json"


@cache
def _read_cache() -> dict[str, SourceFacts]:
    global _cached
    cached: dict[str, SourceFacts] = {}
    with suppress(OSError, ValueError, TypeError):
        body = json.loads(_cache_file().read_text())
        cached = {key: SourceFacts(digest, tuple(names), tuple(packages)) for key, digest, names, packages in body}
    _cached = len(cached)
    return cached


def _write_cache() -> None:
    """Write the cache if it grew; if it cannot be written, the next process parses again."""
    global _cached
    cached = _read_cache()
    if len(cached) == _cached:
        return
    _cached = len(cached)
    newest = list(cached.items())[-_MOST_CACHED:]
    body = [(key, facts.digest, facts.names, facts.packages) for key, facts in newest]
    with suppress(OSError):
        _cache_file().parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=_cache_file().parent)
        with open(descriptor, "w") as file:
            json.dump(body, file)
        os.replace(name, _cache_file())
