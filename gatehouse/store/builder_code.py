"""Objects of a project's own, named as `package.module:name`: models, sources, metrics and rules, and their code."""

import hashlib
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gatehouse.errors import GatehouseError


class BuilderError(GatehouseError):
    """An object of a project, named as `package.module:name`, cannot be imported, or is not of the expected kind."""

    permanent = True


def builder_code(*names: str) -> str:
    """SHA-256 over the top-level packages of names of the form `package.module:name`, as 64 hexadecimal digits.

    A package is not imported. Every file of it counts, except hidden files and what Python compiled; other packages
    that it imports do not.
    Names of another form are of Gatehouse's own; without one of this form the text is empty. Raises BuilderError if a
    package is not installed here, because its code is part of what decides the result.
    """
    packages = {name.partition(":")[0].partition(".")[0]: name for name in names if ":" in name}
    digest = hashlib.sha256()
    for package, named in sorted(packages.items()):
        spec, files = _spec_of(package), []
        if spec and spec.submodule_search_locations:
            for folder in spec.submodule_search_locations:
                for path in Path(folder).rglob("*"):
                    parts = path.relative_to(folder).parts
                    compiled = path.suffix == ".pyc" or "__pycache__" in parts
                    if path.is_file() and not compiled and not any(part.startswith(".") for part in parts):
                        files.append((path.relative_to(folder).as_posix(), path))
        elif spec and spec.origin and Path(spec.origin).is_file():
            files = [(Path(spec.origin).name, Path(spec.origin))]
        if not files:
            raise BuilderError(
                f"{named}: its package {package} is not installed here. Put it on the path (the image, or PYTHONPATH) "
                "of every task and pod that uses it."
            )
        for name, path in sorted(files):
            digest.update(f"{package}\0{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest() if packages else ""


def is_installed(name: str) -> bool:
    """Whether the package of a name of the form `package.module:name` is installed here; it is not imported."""
    return _spec_of(name.partition(":")[0].partition(".")[0]) is not None


def named_object(name: str) -> Any:
    """The object of a name of the form `package.module:name`. Raises BuilderError if it cannot be imported."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except Exception as error:  # A module of the project fails as it likes.
        raise BuilderError(
            f"{name} cannot be imported: {type(error).__name__}: {error}. Put its package on the path (the image, or "
            "PYTHONPATH) of every task and pod that uses it."
        ) from error


def _spec_of(package: str) -> ModuleSpec | None:
    try:
        return find_spec(package)
    except ValueError:  # The module is loaded, but has no source file.
        return None
