"""Code digests: which sources decide a stage's result, found without importing them.

A source digest covers the modules in the import closure of a stage that decide (see `carriers`), each as its syntax
tree without what cannot change a result, and the formats of the carriers that they import. It is the same wherever the
same sources are, so compiled specs hold it. A code digest also covers the versions of the distributions that these
modules import, where the stage runs: keys hold it.
"""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import gatehouse
from gatehouse.store.canonical import digest_of, sha256_bytes
from gatehouse.store.carriers import FORMATS, carries, format_of
from gatehouse.store.source_tree import SourceFacts, facts_of, keep_facts

_ROOT = Path(gatehouse.__file__).parent
_PACKAGE = "gatehouse"
VALIDATORS = frozenset({"pydantic", "pydantic_core"})
"""Packages that validate a request: what they accept is in the request, and so in the key."""
DISTRIBUTIONS = {"xgboost": "xgboost-cpu", "yaml": "PyYAML"}
"""Distributions whose name differs from the imported package."""


@dataclass(frozen=True)
class Code:
    """What decides a stage's result, apart from its request.

    Attributes:
        modules: Digest of the syntax tree of each deciding module, by dotted name.
        distributions: Installed version of each distribution that these modules import. One that is not installed is
            left out, because no result can depend on it.
        formats: Version of what carriers that these modules import write or measure, by carrier.
    """

    modules: dict[str, str]
    distributions: dict[str, str]
    formats: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """The code as JSON."""
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        return {
            "modules": self.modules,
            "distributions": self.distributions | {"python": python},
            "formats": self.formats,
        }

    @property
    def source(self) -> str:
        """SHA-256 of the sources alone, as 64 hexadecimal digits: it does not depend on what is installed."""
        return digest_of({"modules": self.modules, "formats": self.formats})

    @property
    def digest(self) -> str:
        """SHA-256 of the sources and of what is installed here, as 64 hexadecimal digits."""
        return self.digest_with()

    def digest_with(self, source: str = "") -> str:
        """What `digest` is with the source digest of a compiled spec in place of this one."""
        return digest_of({"source": source or self.source, "distributions": self.to_json()["distributions"]})


def code_of(module: str) -> Code:
    """The code that decides what `module` computes.

    Args:
        module: Dotted name of a stage's module, or of a program.
    """
    closure = closure_of(module, carries)
    modules = source_digests(closure)
    packages = packages_of(closure)
    distributions = {distribution_of(package) for package in packages - VALIDATORS}
    formats = {format_of(name) for each in closure for name in imports_of(each) if carries(name)} - {""}
    return Code(
        modules=modules,
        distributions={name: version for name in sorted(distributions) if (version := _version(name))},
        formats={name: FORMATS[name] for name in sorted(formats)},
    )


def code_digest(module: str) -> str:
    """SHA-256 over everything that decides what `module` computes, as 64 hexadecimal digits."""
    return code_of(module).digest


def closure_of(module: str, left_out: Callable[[str], bool]) -> frozenset[str]:
    """Dotted names of our modules that running `module` can load, including `module`.

    Imports inside functions count. A text that is the dotted name of a module also counts, because programs that run as
    separate processes are named this way. A text such as `gatehouse.metrics.*` counts as all modules of a
    folder.

    Args:
        module: The module to start with.
        left_out: Whether to leave out a module and its imports.
    """
    seen: set[str] = set()
    pending = [module]
    while pending:
        name = pending.pop()
        if name in seen or source_of(name) is None or left_out(name):
            continue
        seen.add(name)
        pending.extend(imports_of(name))
    keep_facts()
    return frozenset(seen)


def source_digests(modules: Iterable[str]) -> dict[str, str]:
    """Digest of the syntax tree of each module, by name, without what cannot change a result."""
    return {name: _facts(name).digest for name in sorted(modules)}


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
    named = (part for name in _facts(module).names for each in _members(name) for part in _parents(each))
    return frozenset(name for name in named if source_of(name) is not None)


def distribution_of(package: str) -> str:
    """The distribution that provides an imported package."""
    return DISTRIBUTIONS.get(package, package)


def _members(name: str) -> list[str]:
    """The modules of a folder for a name that ends in `.*`; else the name itself."""
    package, found, _ = name.partition(".*")
    source = source_of(package) if found else None
    if source is None:
        return [name]
    return [f"{package}.{path.stem}" for path in sorted(source.parent.glob("[a-z]*.py"))]


def _parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts) + 1)]


@cache
def source_of(module: str) -> Path | None:
    """The source file of one of our modules, or None if the name is no module (an attribute, another package)."""
    if module.split(".")[0] != _PACKAGE:
        return None
    base = _ROOT.joinpath(*module.split(".")[1:])
    for path in (base / "__init__.py", base.with_suffix(".py")):
        if path.is_file():
            return path
    return None


@cache
def _facts(module: str) -> SourceFacts:
    path = source_of(module)
    assert path is not None, module
    return facts_of(path.read_bytes())


@cache
def _version(distribution: str) -> str:
    try:
        # The local label of a build (`+cpu`) is dropped: it names the origin of a wheel, not its code.
        return metadata.version(distribution).split("+")[0]
    except metadata.PackageNotFoundError:
        return ""


def forget_sources() -> None:
    """Read every source again at the next call; for a process that edits sources."""
    source_of.cache_clear()
    _facts.cache_clear()
    imports_of.cache_clear()
