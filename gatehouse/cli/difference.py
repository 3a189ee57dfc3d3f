"""Shows what changed between two snapshots or tables, for people and for programs."""

from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gatehouse.cli.output import JsonOption, StoreOption, find, open_store, print_json, print_table
from gatehouse.data.validation.sensitivity import sensitive_columns
from gatehouse.store.comparison import ColumnChange, TableChange, compare

_STYLES = {"added": "green", "removed": "red", "retyped": "bold red", "changed": "yellow"}


def diff(
    before: Annotated[str, typer.Argument(help="The older snapshot or table.")],
    after: Annotated[str, typer.Argument(help="The newer one.")],
    key: Annotated[
        str, typer.Option(help="Columns that identify a row, e.g. id or day,carrier; default: the whole row.")
    ] = "",
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show what changed between two snapshots or tables: columns, rows, statistics.

    Rows are compared by the columns that both sides have with the same type. Distinct values of tables over a million
    rows are estimated.
    """
    opened = open_store(store)
    first, second = find(opened, before), find(opened, after)
    hidden = partial(sensitive_columns, opened)
    changes = compare(opened, first, second, hidden, [each.strip() for each in key.split(",") if each.strip()])
    if as_json:
        print_json([_json(change) for change in changes])
        return
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(Text.assemble(("- ", "red"), str(first)), Text.assemble(("+ ", "green"), str(second)), sep="\n")
    same = [change.table for change in changes if change.same]
    for change in changes:
        if not change.same:
            _print_change(console, change)
    if same:
        console.print(Text(f"\nunchanged: {', '.join(same)}", style="dim"))


def _json(change: TableChange) -> dict[str, Any]:
    return asdict(change) | {
        "before": str(change.before or ""),
        "after": str(change.after or ""),
        "same": change.same,
        "columns": [asdict(column) | {"state": column.state} for column in change.columns],
    }


def _print_change(console: Console, change: TableChange) -> None:
    state = "added" if change.before is None else "removed" if change.after is None else ""
    console.print(Text.assemble("\n", (change.table, "bold"), (f" {state}" if state else "", _STYLES.get(state, ""))))
    rows = Text(f"{change.rows[0]:,} → {change.rows[1]:,} rows: ")
    counts = [("added", change.added), ("removed", change.removed), ("changed", change.changed)]
    for name, count in counts:
        if count:
            rows.append(f"{count:,} {name}, ", style=_STYLES[name])
    rows.append(f"{change.common:,} in common")
    console.print(rows)
    shown = [column for column in change.columns if column.state != "same" and not state]
    if shown:
        table = Table("column", "", "statistic", box=None, pad_edge=False)
        table.add_column("before", justify="right")
        table.add_column("after", justify="right")
        for column in shown:
            _add_column(table, column)
        print_table(table)


def _add_column(table: Table, column: ColumnChange) -> None:
    state = Text(column.state, style=_STYLES[column.state])
    rows = [("type", column.before, column.after)] if column.state in ("added", "removed", "retyped") else []
    if column.state in ("retyped", "changed"):
        rows += [(name, _value(first), _value(second)) for name, (first, second) in column.statistics.items()]
    for number, (name, first, second) in enumerate(rows):
        table.add_row(*((column.name, state) if number == 0 else ("", "")), name, first, second)


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = "" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
