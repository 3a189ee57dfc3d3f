"""What commands on a store share: its option, references, and output as tables or JSON."""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gatehouse.cli.place import PROJECT_FILE, store_address
from gatehouse.errors import ConfigurationError
from gatehouse.store.reference import Reference, references_in
from gatehouse.store.store import ArtifactStore

_STORE = "The store, or the folder of its project; default: this folder's project, or its store."
StoreOption = Annotated[str, typer.Option("--store", "--project", help=_STORE)]
"""For commands that need nothing but a store, which a person may know as that of a project."""
StoreBesideProjectOption = Annotated[str, typer.Option("--store", help=_STORE)]
"""For commands that read a project too."""
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
_WIDTH = 400


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
        from gatehouse.registry.naming import named, names_a_version

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


def seconds_of(option: str, text: str) -> float:
    """Seconds of a duration such as 24h, 30m, 7d or 0. Raises ConfigurationError if it has another form."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if match is None or (not match[2] and float(match[1])):
        raise ConfigurationError(f"{option}: expected a duration such as 24h, 30m, 7d or 0, found {text!r}.")
    return float(match[1]) * {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}[match[2] or "s"]


def size(count: int) -> str:
    """A number of bytes in words: 1,234 bytes, or 1.2 GB, in powers of 1000."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6)):
        if count >= scale:
            return f"{count / scale:,.1f} {unit}"
    return f"{count:,} bytes"


def short(value: str) -> str:
    """A value for a table, with digests shortened."""
    if references_in([value]):
        return Reference.parse(value).short
    return f"{value[:12]}…" if len(value) == 64 and " " not in value else value


def print_table(table: Table) -> None:
    """Print a table at full width, because a reference that ends in dots cannot be copied."""
    Console(width=max(Console().width, _WIDTH), markup=False).print(table, soft_wrap=True)


def print_rows(head: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    """Print rows below a head."""
    table = Table(*head, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    print_table(table)


def print_facts(facts: Iterable[tuple[str, str | Text]], indent: str = "") -> None:
    """Print names, dimmed, and values, without a head."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in facts:
        table.add_row(Text(f"{indent}{name}", style="dim"), value if isinstance(value, Text) else Text(value))
    print_table(table)


def print_json(body: Any) -> None:
    """Print JSON; values that JSON lacks (dates, decimals) become text."""
    typer.echo(json.dumps(body, indent=1, default=str))
