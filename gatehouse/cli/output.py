"""The one printer of typed results, as tables and facts for people or as JSON for programs, and options of commands."""

import json
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from pydantic import BaseModel
from pydantic_core import to_json
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from gatehouse.api.records import Selection, Size, fields_of
from gatehouse.reports.format import duration, number
from gatehouse.store.reference import Reference, is_identity

_STORE = "The store, or the folder of its project; default: this folder's project, or its store."


def _one_place(value: str) -> str:
    """The value of an option that has two names. Raises typer.BadParameter if the command line has both."""
    if {"--store", "--project"} <= {word.partition("=")[0] for word in sys.argv}:
        raise typer.BadParameter("expected --store or --project, which name the same place here, found both")
    return value


StoreOption = Annotated[str, typer.Option("--store", "--project", help=_STORE, callback=_one_place)]
"""For commands that need nothing but a store, which a person may know as that of a project."""
StoreBesideProjectOption = Annotated[str, typer.Option("--store", help=_STORE)]
"""For commands that read a project too."""
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
WhereOption = Annotated[
    list[str] | None,
    typer.Option(help="NAME=VALUE, NAME=LOW..HIGH, NAME<VALUE, …; several must all hold. Numbers compare as numbers."),
]
SortOption = Annotated[str, typer.Option(help="Sort by this name, the smallest first; -NAME: the largest first.")]
ProjectOption = Annotated[Path | None, typer.Option("--project", help="Folder of the project; default: this one.")]
ProjectArgument = Annotated[Path | None, typer.Argument(help="Folder of the project; default: this one.")]
ReasonOption = Annotated[str, typer.Option(help="Why; it is kept in the record.")]
_WIDTH, _LONG, _MOST_INSIDE, _MOST_ENTRIES = 400, 60, 40, 3
_STYLES = {
    **dict.fromkeys(("succeeded", "finished", "pass", "passed", "deleted", "intact", "copied", "champion"), "green"),
    **dict.fromkeys(("failed", "fail", "broken", "corrupt", "refused", "✗"), "bold red"),
    **dict.fromkeys(("erased", "unreadable", "killed", "stopped"), "red"),
    **dict.fromkeys(("running", "scheduled", "interrupted", "deprecated", "waiting"), "yellow"),
    **dict.fromkeys(("inconclusive", "paused", "disabled", "not checked", "revoked"), "yellow"),
    **dict.fromkeys(("kept", "present", "early stopped"), "dim"),
    "✓": "green",
}


def show(result: Any, as_json: bool = False, view: Any = None, empty: str = "", most: int = 0) -> None:
    """Print a result: as JSON, or for people `view` of it, by default the result itself.

    A list of records is a table without the columns that are empty in all rows, and `empty` if there is none; with
    `most`, only so many rows are shown. A record is its facts, and below them what has several parts. The result of a
    search has the values that it compared, besides.
    """
    compared: dict[str, list[Any]] = {}
    if isinstance(result, Selection):
        result, compared = result.records, {name.rpartition(".")[2]: cells for name, cells in result.columns.items()}
    if as_json:
        print_json(result)
        return
    seen = result if view is None else view
    if isinstance(seen, str):
        echo(seen)
    elif not _is_list(seen):
        _print_record(fields_of(seen, shown=True))
    elif seen:
        rows = [fields_of(row, shown=True) for row in seen]
        _print_table([row | {name: compared[name][at] for name in compared} for at, row in enumerate(rows)], most)
    elif empty:
        typer.echo(empty, err=True)


def print_json(result: Any) -> None:
    """Print JSON: numbers that JSON lacks become null, spans of time seconds, and other values text."""
    typer.echo(to_json(result, indent=1, inf_nan_mode="null", timedelta_mode="float", fallback=str))


def echo(*parts: str | tuple[str, str]) -> None:
    """Print a line of texts, some with a style, at any length."""
    Console(soft_wrap=True, highlight=False, markup=False).print(Text.assemble(*parts))


def size(count: int) -> str:
    """A number of bytes in words: 1,234 bytes, or 1.2 GB, in powers of 1000."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6)):
        if count >= scale:
            return f"{count / scale:,.1f} {unit}"
    return f"{count:,} bytes"


def written(path: Path, text: str) -> Path:
    """Write a text to a file, and its folder if there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_empty(value: Any) -> bool:
    return value is None or value is False or (isinstance(value, str | Sequence | Mapping) and not value)


def _is_plain(value: Any) -> bool:
    """Whether a value is one fact: no record, and no list of records."""
    return not (isinstance(value, Mapping | BaseModel) or hasattr(value, "__dataclass_fields__")) or isinstance(
        value, Reference
    )


def _print_table(rows: Sequence[Any], most: int = 0, indent: str = "") -> None:
    bodies = [fields_of(row, shown=True) for row in rows]
    names = list(dict.fromkeys(name for body in bodies for name in body))
    columns = {name: [body.get(name) for body in bodies] for name in names}
    columns = {name: cells for name, cells in columns.items() if not all(map(_is_empty, cells))}
    table = Table(box=None, pad_edge=False)
    texts = []
    for place, (name, cells) in enumerate(columns.items()):
        zone = " (UTC)" if any(isinstance(cell, datetime) for cell in cells) else ""
        numbers = all(cell is None or isinstance(cell, int | float | timedelta) for cell in cells)
        title = f"{indent if place == 0 else ''}{name}{zone}"
        table.add_column(Text(title), justify="right" if numbers else "left")
        # A digest is cut where the rest still tells the rows apart.
        shorts = Counter(str(_text(text)) for text in {str(cell) for cell in cells if is_identity(str(cell))})
        column = [_text(cell, whole=shorts[str(_text(cell))] > 1) for cell in cells]
        texts.append([Text(indent) + cell for cell in column] if place == 0 else column)
    for row in list(zip(*texts, strict=True))[: most or None]:
        table.add_row(*row)
    _print_wide(table)
    if most and len(rows) > most:
        typer.echo(f"{indent}… and {len(rows) - most:,} more; --json prints all")


def _print_record(body: Mapping[str, Any], indent: str = "") -> None:
    facts, parts = Table(box=None, show_header=False, pad_edge=False), {}
    for name, value in body.items():
        nested = isinstance(value, str) and "\n" in value.strip()
        if _is_empty(value):
            continue
        if nested or not _is_plain(value) or (_is_list(value) and not all(map(_is_plain, value))):
            parts[name] = value
        else:
            facts.add_row(Text(f"{indent}{name}", style="dim"), _text(value, whole=True))
    if facts.row_count:
        _print_wide(facts)
    for name, value in parts.items():
        echo(f"\n{indent}", (name, "bold"))
        if isinstance(value, str):
            code = Syntax(value.rstrip(), name, theme="ansi_light", background_color="default")
            Console(soft_wrap=True).print(code if name == "sql" else Text(value.rstrip()))
        elif _is_list(value):
            _print_table(value, _MOST_INSIDE, indent=f"{indent}  ")
        elif any(not _is_plain(inner) for inner in fields_of(value).values()):
            body_of_part = json.loads(to_json(value, fallback=str))
            echo(yaml.safe_dump(body_of_part, sort_keys=True, allow_unicode=True).rstrip())
        else:
            _print_record(fields_of(value, shown=True), f"{indent}  ")


def _text(value: Any, whole: bool = False) -> Text:
    """A value for people; a reference is cut unless it is `whole`."""
    if isinstance(value, Text):
        return value
    if value is None or isinstance(value, bool):
        return Text("yes" if value else "")
    if isinstance(value, Size):
        return Text(size(value))
    if isinstance(value, int | float):
        return Text(f"{value:,}" if isinstance(value, int) else number(value))
    if isinstance(value, datetime):
        return Text(f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}{' UTC' if whole else ''}")
    if isinstance(value, timedelta):
        return Text(duration(value.total_seconds()))
    if isinstance(value, Mapping):
        shown = [f"{name} {_text(inner)}" for name, inner in value.items()][:_MOST_ENTRIES]
        return Text("  ".join([*shown, f"+{len(value) - len(shown)}" if len(value) > len(shown) else ""]).rstrip())
    if hasattr(value, "low"):  # A number with its interval.
        return Text(
            number(value.value) + ("" if value.low is None else f" [{number(value.low)}, {number(value.high)}]")
        )
    if not _is_plain(value):  # A record inside a cell, such as an example of a rejected row.
        return Text("  ".join(str(_text(inner)) for inner in fields_of(value, shown=True).values()))
    if _is_list(value):
        texts = [str(_text(inner, whole)) for inner in value]
        return Text(("\n" if sum(map(len, texts)) > _LONG else ", ").join(texts))
    text = str(value)
    if is_identity(text) and not whole:
        return Text(Reference.parse(text).short)
    if re.fullmatch("[0-9a-f]{64}", text) and not whole:
        return Text(f"{text[:12]}…")
    return Text(text, style=_STYLES.get(text.lower().partition(",")[0], ""))


def _print_wide(table: Table) -> None:
    """Print a table at full width, because a reference that ends in dots cannot be copied."""
    Console(width=max(Console().width, _WIDTH), markup=False, highlight=False).print(table, soft_wrap=True)
