"""What commands on a store share: its option, references, and output as tables or JSON."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gatehouse.errors import ConfigurationError
from gatehouse.store.reference import Reference, references_in

_STORE = "The store, or the folder of its project; default: this folder's project, or its store."
StoreOption = Annotated[str, typer.Option("--store", "--project", help=_STORE)]
"""For commands that need nothing but a store, which a person may know as that of a project."""
StoreBesideProjectOption = Annotated[str, typer.Option("--store", help=_STORE)]
"""For commands that read a project too."""
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
_WIDTH = 400


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
