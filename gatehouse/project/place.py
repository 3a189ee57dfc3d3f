"""Finds the project and the store that a person names or means, and what a name stands for in the store."""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gatehouse.errors import ConfigurationError
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

LONGEST_NAME = 40
"""Characters of a project's name at most."""
PROJECT_FILE = "project.yaml"
DEFAULT_STORE = ".gatehouse/store"


def project_folder(folder_option: Path | None) -> Path:
    """The folder of the project: the given one, else the current one.

    Raises ConfigurationError if neither holds a project.
    """
    folder = folder_option or Path.cwd()
    if (folder / PROJECT_FILE).is_file():
        return folder
    near = sorted(path.parent.name for path in folder.glob(f"*/{PROJECT_FILE}"))
    meant = f" There is one in {', '.join(near)}: name it." if near else " `gatehouse init NAME` writes one."
    raise ConfigurationError(f"{folder}: expected the folder of a project, found no {PROJECT_FILE} in it.{meant}")


def store_address(address: str, project: Path | None = None) -> str:
    """The address of the store: the given one, else that of the project, else `.gatehouse/store` in this folder.

    `address` is the option of the command line, relative to this folder; `project` is by default the current folder.
    """
    folder = project or Path.cwd()
    if address or not (folder / PROJECT_FILE).is_file():
        return address or DEFAULT_STORE
    from gatehouse.configuration.yaml_lines import read_yaml  # Late, because it imports pydantic.

    try:
        body = read_yaml((folder / PROJECT_FILE).read_text(), PROJECT_FILE)
    except (OSError, UnicodeError, ConfigurationError):
        body = None  # The command that reads the project reports its problems.
    named = body.get("store") if isinstance(body, dict) else None
    return in_folder(folder, str(named or DEFAULT_STORE))


def open_store(address: str) -> ArtifactStore:
    """Open an existing store, by default that of the current folder. A mistyped address must not create a store.

    The folder of a project stands for the store of the project. Raises ConfigurationError if the directory does not
    exist.
    """
    address = address_of(address)
    if missing := no_store_at(address):
        raise ConfigurationError(missing)
    return ArtifactStore.open(address)


def address_of(text: str) -> str:
    """The address of a store from a store's address, the folder of its project, or nothing."""
    return store_address("", Path(text)) if text and Path(text, PROJECT_FILE).is_file() else store_address(text)


def no_store_at(address: str) -> str:
    """An error message if a local directory does not exist; empty if it does, or the store is remote."""
    if "://" in address.removeprefix("file://") or Path(address.removeprefix("file://")).is_dir():
        return ""
    return (
        f"--store: expected the directory of a store, found nothing at {address!r}. `gatehouse run` writes one; "
        "run this in the folder of its project, or give --store that folder."
    )


def find(store: ArtifactStore, text: str) -> Reference:
    """The reference that `text` names: complete, with a shortened digest, or by kind and name if that is unique.

    A model version can also be named NAME:2 or NAME@champion. Raises InvalidReferenceError if it cannot be a reference.
    Raises ConfigurationError if the store holds no reference that begins with it, or several.
    """
    if "/" not in text:
        from gatehouse.registry.naming import named, names_a_version  # Late, because it imports the ledger.

        if names_a_version(text):
            return Reference.parse(named(store, text).version.model)
    unknown = f"{text} is not in the store {store.address}. See `gatehouse data list`, or name another --store."
    parts = text.rstrip("/").split("/")
    parts = parts[-3:] if parts[-1].startswith("sha256-") else [*parts, "sha256-"]
    digest = parts[-1].removeprefix("sha256-")
    plain = all(re.fullmatch("[A-Za-z0-9][A-Za-z0-9._-]*", part) for part in parts)
    if len(parts) != 3 or len(digest) >= 64 or not plain:
        reference = Reference.parse(text)
        if store.objects.stat(f"{reference}/manifest.json") is None:
            raise ConfigurationError(unknown)
        return reference
    matches = [reference for reference in store.references(*parts[:2]) if reference.digest.startswith(digest)]
    if not matches:
        raise ConfigurationError(unknown)
    if len(matches) > 1:
        examples = ", ".join(reference.short for reference in matches[:5]) + (", …" if len(matches) > 5 else "")
        raise ConfigurationError(f"{text} is the beginning of {len(matches)} references: {examples}. Give more digits.")
    return matches[0]


def in_folder(folder: Path, address: str) -> str:
    """An address unchanged, or a path relative to a folder."""
    return address if "://" in address else str(folder / address)


@contextmanager
def whole_or_none(target: Path) -> Iterator[Path]:
    """A temporary folder for a new project; it is moved to its place when it is complete."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as beside:
        made = Path(beside, target.name)
        made.mkdir()
        yield made
        made.rename(target)
