"""`gatehouse serve`: the registry over HTTP, and its tokens; `gatehouse predictor`: a model over HTTP."""

import logging
from pathlib import Path
from typing import Annotated

import typer

from gatehouse.cli.output import StoreBesideProjectOption, StoreOption, print_rows
from gatehouse.errors import ConfigurationError
from gatehouse.project.place import open_store, project_folder, store_address
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
    scopes: dict[str, Scope] = {allowed: allowed for allowed in SCOPES}
    if wrong := [text for text in scope if text not in scopes]:
        raise ConfigurationError(f"--scope: expected {', '.join(SCOPES)}, found {', '.join(wrong)}.")
    typer.echo(create_token(open_store(store), name, [scopes[text] for text in scope], days))


@token.command("list")
def list_tokens(store: StoreBesideProjectOption = "") -> None:
    """List the tokens of a store: who, what for, until when."""
    tokens = tokens_of(open_store(store)).values()
    head = ("id", "name", "scopes", "until", "created by", "")
    print_rows(
        head, ((t.id, t.name, ", ".join(t.scopes), t.until, t.by, "revoked" if t.revoked else "") for t in tokens)
    )


@token.command("revoke")
def revoke(
    number: Annotated[str, typer.Argument(metavar="ID", help="The id, as `gatehouse serve token list` shows it.")],
    store: StoreBesideProjectOption = "",
) -> None:
    """Take a token back; every server of the store refuses it within a second or two."""
    revoked = revoke_token(open_store(store), number)
    typer.echo(f"The token {revoked.id} of {revoked.name} is revoked.")


def predictor(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="NAME:2 or NAME@champion.")],
    store: StoreOption = "",
    online: Annotated[bool, typer.Option("--online", help="Also take keys alone: read the online store.")] = False,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port; 0 for a free one.")] = 8080,
    tokens: Annotated[bool, typer.Option("--tokens", help="Answer only callers with a token of the store.")] = False,
    rate: Annotated[float, typer.Option(min=0.1, help="Calls a second of each token; twice as many at once.")] = 1000,
    follow: Annotated[float, typer.Option(min=0, help="Seconds between looks at where an alias is; 0 for none.")] = 10,
) -> None:
    """Serve the predictions of a model until SIGINT or SIGTERM; they are those of a batch, to the bit."""
    import uvicorn

    from gatehouse.registry.naming import named
    from gatehouse.server.access import Access, Rate
    from gatehouse.server.inference import ServedModel
    from gatehouse.server.predictor import Following, create_app

    opened = open_store(store)
    served = ServedModel.of(opened, model, online)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.info("%s:%s is %s", served.name, served.version, served.model)

    def newer(present: ServedModel) -> ServedModel | None:
        moved = str(named(opened, model).number) != present.version
        return ServedModel.of(opened, model, online) if moved else None

    following = Following(served, newer if follow and "@" in model else None, follow)
    access = Access(opened, Rate(rate, max(1, round(2 * rate)))) if tokens else None
    uvicorn.run(create_app(following, access), host=host, port=port, log_config=None, server_header=False)
