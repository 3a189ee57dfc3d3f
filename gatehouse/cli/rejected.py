"""`gatehouse data rejected`: the rows that snapshots rejected, with reasons."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from gatehouse.cli.output import JsonOption, StoreOption, find, open_store, print_json
from gatehouse.data.snapshot.rejected import KIND, groups_of, rejected_of
from gatehouse.runtime.counting import counted


def rejected(
    reference: Annotated[
        str, typer.Argument(help="A snapshot, a dataset, or the rejected rows of one; default: all of the store.")
    ] = "",
    examples: Annotated[int, typer.Option(min=0, help="How many examples of each reason.")] = 3,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show the rows that did not fit, by reason, with examples; no value of a table with sensitive columns."""
    from gatehouse.data.sources.declared import HIDDEN, NOT_SHOWN

    opened = open_store(store)
    references = rejected_of(opened, find(opened, reference)) if reference else list(opened.references(KIND))
    tables = {rows: groups_of(opened, rows, examples) for rows in references}
    if as_json:
        print_json([{"reference": str(rows), "groups": list(map(asdict, groups))} for rows, groups in tables.items()])
        return
    if not tables:
        typer.echo(f"No row of {reference or opened.address} was rejected.")
    console = Console(soft_wrap=True, highlight=False, markup=False)
    for rows, groups in tables.items():
        manifest = opened.manifest(rows)
        dataset = opened.manifest(manifest.derived_from["dataset"])
        kept = f"{counted(dataset.rows or 0, 'row')}, {manifest.rows or 0:,} rejected"
        console.print(Text.assemble((manifest.name, "bold"), f" {kept}  ", (rows.short, "dim")))
        for group in groups:
            column = f"column {group.column}: " if group.column else ""
            console.print(Text.assemble((f"{group.rows:>9,}  ", "yellow"), f"{column}{group.reason}"))
            for example in group.examples:
                value = "" if example.found == NOT_SHOWN else f", found {example.found}"
                row = "" if example.raw == HIDDEN else f": {example.raw}"
                console.print(Text(f"           {example.place}{value}{row}", style="dim"))
        if hidden := ", ".join(dataset.details.get("sensitive", ())):
            console.print(Text(f"           No value is shown, as columns are sensitive: {hidden}.", style="dim"))
