"""`gatehouse data infer-contract` and `contract-schema`: a first contract of a snapshot, and the form of contracts."""

from pathlib import Path
from typing import Annotated

import typer

from gatehouse.cli.output import StoreOption, find, open_store
from gatehouse.data.validation.contract import contract_schema
from gatehouse.errors import ConfigurationError


def infer(
    snapshot: Annotated[str, typer.Argument(help="A snapshot; its digest may be cut where it stays unique.")],
    out: Annotated[Path | None, typer.Option(help="Write it to this file; default: print it.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    store: StoreOption = "",
) -> None:
    """Write a data contract from what a snapshot holds, each rule beside what was seen.

    The snapshot itself keeps every rule. It is a start: read it, set owners, and loosen or tighten it.
    """
    # Needs DuckDB, which the other commands should not import.
    from gatehouse.data.validation.inference.infer import infer_contract

    if out is not None and out.exists() and not force:
        raise ConfigurationError(f"--out: {out} is there already; give another file, or --force to write over it.")
    if out is not None and not out.parent.is_dir():
        raise ConfigurationError(f"--out: expected the directory {out.parent} to be there, found none.")
    opened = open_store(store)
    text = infer_contract(opened, find(opened, snapshot))
    if out is None:
        typer.echo(text, nl=False)
        return
    out.write_text(text, encoding="utf-8")
    typer.echo(out)


def schema() -> None:
    """Print the JSON schema of contracts, for editors and other tools."""
    typer.echo(contract_schema(), nl=False)
