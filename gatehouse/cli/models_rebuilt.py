"""`gatehouse models reproduce`: rebuilds a registered model from its snapshot, and checks that it is identical."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from gatehouse.cli.output import JsonOption, StoreOption, open_store, print_json, print_table
from gatehouse.registry.reproduction import Reproduced, ReproduceRequest
from gatehouse.registry.reproduction import reproduce as reproduced


def reproduce(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="NAME:2 or NAME@champion.")],
    into: Annotated[Path | None, typer.Option(help="An empty folder for the store; default: a temporary one.")] = None,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Rebuild a version from its snapshot in a clean store, and prove that its weights are the same."""
    found = reproduced(ReproduceRequest(model=model, into=str(into or "")), open_store(store))
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        _print(found)
    if not found.same:
        raise typer.Exit(1)


def _print(found: Reproduced) -> None:
    done = f"{found.copied} artifacts were copied, {found.made} made again, by {found.processes} process(es)"
    if found.same:
        typer.echo(f"{found.model} was made again to the bit: {done}.\nweights sha256-{found.weights}")
        return
    typer.echo(f"{found.model} came out otherwise: {done}.")
    typer.echo(f"weights sha256-{found.weights}\n        sha256-{found.weights_again}")
    typer.echo(f"first that differs: {found.first}")
    typer.echo(f"scores differ by {found.largest:.3g} at most, {found.mean:.3g} in the mean")
    if not found.differences:
        typer.echo("Neither code nor environment differ from when it was made.")
    table = Table("what differs", "", "then", "now", box=None, pad_edge=False)
    for each in found.differences:
        table.add_row(Text(each.part, style="dim"), *map(Text, (each.name, each.first, each.second)))
    if found.differences:
        print_table(table)
