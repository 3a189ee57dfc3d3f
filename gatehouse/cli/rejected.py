"""`gatehouse data rejected`: the rows that snapshots set aside, with reasons."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from gatehouse.cli.output import JsonOption, StoreOption, find, open_store, print_json
from gatehouse.data.snapshot.rejected import KIND, Group, groups_of, rejected_of
from gatehouse.runtime.counting import counted
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore


def rejected(
    reference: Annotated[
        str, typer.Argument(help="A snapshot, a dataset, or the rejected rows of one; default: all of the store.")
    ] = "",
    examples: Annotated[int, typer.Option(min=0, help="How many examples of each reason.")] = 3,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show the rows that did not fit, by reason, with examples; no value of a table with sensitive columns."""
    opened = open_store(store)
    wanted = rejected_of(opened, find(opened, reference)) if reference else list(opened.references(KIND))
    found = {each: groups_of(opened, each, examples) for each in wanted}
    if as_json:
        print_json([{"reference": str(each), "groups": list(map(asdict, groups))} for each, groups in found.items()])
        return
    if not found:
        typer.echo(f"No row of {reference or opened.address} was rejected.")
    for each, groups in found.items():
        print_groups(opened, each, groups)


def print_groups(store: ArtifactStore, reference: Reference, groups: list[Group]) -> None:
    """Print the rejected rows of a table: their number and share, then each reason with examples."""
    from gatehouse.data.sources.declared import HIDDEN, NOT_SHOWN

    console = Console(soft_wrap=True, highlight=False, markup=False)
    manifest = store.manifest(reference)
    dataset = store.manifest(manifest.derived_from["dataset"])
    kept = f"{counted(dataset.rows or 0, 'row')}, {manifest.rows or 0:,} rejected"
    console.print(Text.assemble((manifest.name, "bold"), f" {kept}  ", (reference.short, "dim")))
    for group in groups:
        column = f"column {group.column}: " if group.column else ""
        console.print(Text.assemble((f"{group.rows:>9,}  ", "yellow"), f"{column}{group.reason}"))
        for one in group.examples:
            found = "" if one.found == NOT_SHOWN else f", found {one.found}"
            row = "" if one.raw == HIDDEN else f": {one.raw}"
            console.print(Text(f"           {one.place}{found}{row}", style="dim"))
    if hidden := ", ".join(dataset.details.get("sensitive", ())):
        console.print(Text(f"           No value is shown, as columns are sensitive: {hidden}.", style="dim"))
