"""Code digests: which sources a stage's result depends on, found without importing them."""

import hashlib
import re
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path

import gatehouse

_ROOT = Path(gatehouse.__file__).parent
_PACKAGE = "gatehouse"
# Parsing every file takes a quarter of a second, which a run that finds nothing new would notice. One statement a line,
# and no backslash at its end, is what the formatter leaves; a line of a docstring that reads so only adds a module.
_IMPORT = re.compile(
    rf"^[ \t]*(?:from ({_PACKAGE}[\w.]*) import (\([^)]*\)|[^\n]*)|import ({_PACKAGE}[\w.]*))", re.MULTILINE
)
_NAME = re.compile(r"\w+")


def code_digest(module: str, distributions: Iterable[str] = ()) -> str:
    """SHA-256 over a stage's import closure inside `gatehouse` and the versions of the distributions it declares.

    Every import statement counts, also those inside functions. A distribution that is not installed counts as
    `absent`.

    Args:
        module: Dotted name of the stage's module.
        distributions: Names of the distributions whose version changes the stage's result.
    """
    digest = hashlib.sha256()
    for name in sorted(import_closure(module)):
        path = _source(name)
        if path is not None:
            digest.update(f"{name}\0{_file_digest(path)}\n".encode())
    for distribution in sorted(set(distributions)):
        digest.update(f"{distribution}=={_version(distribution)}\n".encode())
    return digest.hexdigest()


def import_closure(module: str) -> frozenset[str]:
    """Dotted names of all modules inside `gatehouse` that importing `module`, and running it, can load."""
    seen: set[str] = set()
    pending = [module]
    while pending:
        name = pending.pop()
        if name in seen or _source(name) is None:
            continue
        seen.add(name)
        pending.extend(_imports(name))
    return frozenset(seen)


@cache
def _imports(module: str) -> frozenset[str]:
    path = _source(module)
    if path is None:
        return frozenset()
    found: set[str] = set()
    for base, names, whole in _IMPORT.findall(path.read_text()):
        found.update(_parents(base or whole))
        found.update(f"{base}.{name}" for name in _NAME.findall(names))
    return frozenset(name for name in found if _source(name) is not None)


def _parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts) + 1)]


@cache
def _source(module: str) -> Path | None:
    """The source file of a module of ours, or None where the name is no module (an attribute, another package)."""
    if module.split(".")[0] != _PACKAGE:
        return None
    base = _ROOT.joinpath(*module.split(".")[1:])
    for path in (base / "__init__.py", base.with_suffix(".py")):
        if path.is_file():
            return path
    return None


@cache
def _file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def _version(distribution: str) -> str:
    try:
        # The local label of a build (`+cpu`) is dropped: it tells where a wheel came from, not which code it is.
        return metadata.version(distribution).split("+")[0]
    except metadata.PackageNotFoundError:
        return "absent"
