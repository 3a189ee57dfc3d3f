"""`gatehouse data`: what a store holds, and whether it is intact."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from gatehouse.commands.run import DEFAULT_STORE
from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.store import ArtifactStore

app = typer.Typer(no_args_is_help=True, help="References: list, show, verify.")
StoreOption = Annotated[str, typer.Option(help="The store.")]


@app.command("list")
def list_references(
    kind: Annotated[str, typer.Argument(help="Only this kind, e.g. datasets.")] = "",
    store: StoreOption = str(DEFAULT_STORE),
) -> None:
    """List the references of a store."""
    opened = ArtifactStore.open(store)
    table = Table("reference", "rows", "files", "bytes", box=None, pad_edge=False)
    for reference in opened.references(kind or None):
        manifest = opened.manifest(reference)
        size = sum(entry.bytes for entry in manifest.files)
        table.add_row(str(reference), _count(manifest.rows), str(len(manifest.files)), f"{size:,}")
    _print(table)


@app.command()
def show(reference: str, store: StoreOption = str(DEFAULT_STORE)) -> None:
    """Show one manifest as JSON."""
    opened = ArtifactStore.open(store)
    Console(soft_wrap=True).print_json(opened.manifest(reference).to_json())


@app.command()
def verify(
    reference: Annotated[str, typer.Argument(help="One reference and all it was derived from; default: all.")] = "",
    store: StoreOption = str(DEFAULT_STORE),
) -> None:
    """Verify every byte; ends with an error at the first artifact that is not what its reference says."""
    opened = ArtifactStore.open(store)
    wanted = [Reference.parse(reference)] if reference else list(opened.references())
    for each in wanted:
        opened.verify(each)
    typer.echo(f"{len(wanted)} references verified in {opened.address}")


def _count(rows: int | None) -> str:
    return "" if rows is None else f"{rows:,}"


def _print(table: Table) -> None:
    console = Console()
    console.print(table, soft_wrap=True) if console.is_terminal else Console(width=240).print(table)
