"""Common code of the commands on a store: its option, and output as tables or JSON."""

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from gatehouse.cli.place import PROJECT_FILE, store_address
from gatehouse.errors import ConfigurationError
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

_STORE = "The store, or the folder of its project; default: this folder's project, or its store."
StoreOption = Annotated[str, typer.Option("--store", "--project", help=_STORE)]
"""For commands that need nothing but a store, which a person may know as that of a project."""
StoreBesideProjectOption = Annotated[str, typer.Option("--store", help=_STORE)]
"""For commands that read a project too."""
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
_WIDTH = 400
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def open_store(address: str) -> ArtifactStore:
    """Open an existing store, by default that of the current folder. A mistyped address must not create a store.

    The folder of a project stands for the store of the project.

    Raises:
        ConfigurationError: if the directory does not exist.
    """
    address = address_of(address)
    if lacking := no_store_at(address):
        raise ConfigurationError(lacking)
    return ArtifactStore.open(address)


def address_of(given: str) -> str:
    """The address of a store that a person gave: the store itself, the folder of its project, or nothing."""
    inside = given and Path(given, PROJECT_FILE).is_file()
    return store_address("", Path(given)) if inside else store_address(given)


def no_store_at(address: str) -> str:
    """What is said where a local directory does not exist; empty if it does, or the store is elsewhere."""
    if "://" in address.removeprefix("file://") or Path(address.removeprefix("file://")).is_dir():
        return ""
    return (
        f"--store: expected the directory of a store, found nothing at {address!r}. `gatehouse run` writes one; "
        "type this in the folder of its project, or give --store that folder."
    )


def find(store: ArtifactStore, text: str) -> Reference:
    """The reference that `text` names: complete, with a shortened digest, or by kind and name if that is unique.

    A model version can also be named NAME:2 or NAME@champion.

    Raises:
        InvalidReferenceError: if it cannot be a reference.
        ConfigurationError: if the store holds no reference that begins with it, or several.
    """
    if "/" not in text:
        from gatehouse.registry.naming import named, names_a_version

        if names_a_version(text):
            return Reference.parse(named(store, text).version.model)
    parts = text.rstrip("/").split("/")
    parts = parts[-3:] if parts[-1].startswith("sha256-") else [*parts, "sha256-"]
    digest = parts[-1].removeprefix("sha256-")
    if (
        len(parts) != 3
        or len(digest) >= 64
        or not all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", each) for each in parts)
    ):
        reference = Reference.parse(text)
        if store.objects.stat(f"{reference}/manifest.json") is None:
            raise ConfigurationError(_unknown(store, text))
        return reference
    kind, name = parts[:2]
    found = [each for each in store.references(kind, name) if each.digest.startswith(digest)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ConfigurationError(_unknown(store, text))
    raise ConfigurationError(
        f"{text} is the beginning of {len(found)} references: {', '.join(each.short for each in found[:5])}"
        f"{', …' if len(found) > 5 else ''}. Give more digits."
    )


def _unknown(store: ArtifactStore, text: str) -> str:
    return f"{text} is not in the store {store.address}. See `gatehouse data list`, or name another --store."


def seconds_of(option: str, text: str) -> float:
    """Seconds of a duration such as 24h, 30m, 7d or 0.

    Raises:
        ConfigurationError: if it has another form.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if match is None or (not match[2] and float(match[1])):
        raise ConfigurationError(f"{option}: expected a duration such as 24h, 30m, 7d or 0, found {text!r}.")
    return float(match[1]) * _UNITS[match[2] or "s"]


def size(count: int) -> str:
    """A number of bytes in words: 1,234 bytes, or 1.2 GB, in powers of 1000."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6)):
        if count >= scale:
            return f"{count / scale:,.1f} {unit}"
    return f"{count:,} bytes"


def print_table(table: Table) -> None:
    """Print a table at full width, because a reference that ends in dots cannot be copied."""
    Console(width=max(Console().width, _WIDTH), markup=False).print(table, soft_wrap=True)


def print_json(body: Any) -> None:
    """Print JSON; values that JSON lacks (dates, decimals) become text."""
    typer.echo(json.dumps(body, indent=1, default=str))
