"""`gatehouse serve`: the registry over HTTP, and the tokens that open it."""

import logging
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from gatehouse.cli.output import StoreBesideProjectOption, open_store, print_table
from gatehouse.cli.place import project_folder, store_address
from gatehouse.errors import ConfigurationError
from gatehouse.server.tokens import SCOPES, Scope, create_token, revoke_token, tokens_of

app = typer.Typer(help="Serve the registry over HTTP, for programs and for people.")
token = typer.Typer(no_args_is_help=True, help="Tokens of callers: create, list, revoke.")
app.add_typer(token, name="token")


@app.callback(invoke_without_command=True)
def serve(
    context: typer.Context,
    store: StoreBesideProjectOption = "",
    project: Annotated[Path | None, typer.Option(help="The project whose runs may be submitted.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port; 0 for a free one.")] = 8080,
    rate: Annotated[float, typer.Option(min=0.1, help="Calls a second of each token; twice as many at once.")] = 50,
) -> None:
    """Serve the registry of a store, and runs of a project, until SIGINT or SIGTERM."""
    if context.invoked_subcommand:
        return
    import uvicorn

    from gatehouse.project.project import load_project
    from gatehouse.server.access import Rate
    from gatehouse.server.app import create_app
    from gatehouse.tracking.mlflow_client import load_mlflow

    folder = project_folder(project).resolve() if project else None
    opened = open_store(store_address(store, folder))
    loaded = load_project(folder) if folder else None
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    load_mlflow()  # Now, while there is one thread: a promotion writes to it.
    app = create_app(opened, loaded, Rate(rate, max(1, round(2 * rate))))
    uvicorn.run(app, host=host, port=port, log_config=None, server_header=False)


@token.command("create")
def create(
    name: Annotated[str, typer.Argument(help="Who will call with it; this name stands in the ledger.")],
    scope: Annotated[list[str], typer.Option(help=f"What it may do: {', '.join(SCOPES)}; also several.")],
    days: Annotated[int, typer.Option(help="After how many days it expires.")] = 90,
    store: StoreBesideProjectOption = "",
) -> None:
    """Create a token and print it, this once: the store keeps its hash."""
    known: dict[str, Scope] = {each: each for each in SCOPES}
    if wrong := [each for each in scope if each not in known]:
        raise ConfigurationError(f"--scope: expected {', '.join(SCOPES)}, found {', '.join(wrong)}.")
    typer.echo(create_token(open_store(store), name, [known[each] for each in scope], days))


@token.command("list")
def list_tokens(store: StoreBesideProjectOption = "") -> None:
    """List the tokens of a store: who, what for, until when."""
    table = Table("id", "name", "scopes", "until", "created by", "", box=None, pad_edge=False)
    for each in tokens_of(open_store(store)).values():
        table.add_row(
            each.id, each.name, ", ".join(each.scopes), each.until, each.by, "revoked" if each.revoked else ""
        )
    print_table(table)


@token.command("revoke")
def revoke(
    number: Annotated[str, typer.Argument(metavar="ID", help="The id, as `gatehouse serve token list` shows it.")],
    store: StoreBesideProjectOption = "",
) -> None:
    """Take a token back; every server of the store refuses it within a second or two."""
    revoked = revoke_token(open_store(store), number)
    typer.echo(f"The token {revoked.id} of {revoked.name} is revoked.")
