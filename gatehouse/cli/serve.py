"""`gatehouse serve`: the registry over HTTP, and its tokens; `gatehouse predictor`: a model over HTTP."""

import logging
import re
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from gatehouse.cli.output import JsonOption, StoreBesideProjectOption, StoreOption, show
from gatehouse.errors import ConfigurationError
from gatehouse.project.place import open_store, project_folder, store_address
from gatehouse.server.access import SCOPES, Access, Rate, Scope, ServiceAccounts, create_token, revoke_token, tokens_of

app = typer.Typer()
token = typer.Typer(no_args_is_help=True, help="Tokens of callers: create, list, revoke.")
app.add_typer(token, name="token")
HostOption = Annotated[str, typer.Option(help="Address to listen at.")]
PortOption = Annotated[int, typer.Option(min=0, max=65_535, help="Port; 0 for a free one.")]
RateOption = Annotated[float, typer.Option(min=0.1, help="Calls a second of each token; twice as many at once.")]


@app.callback(invoke_without_command=True)
def serve(
    context: typer.Context,
    store: StoreBesideProjectOption = "",
    project: Annotated[Path | None, typer.Option(help="The project whose runs may be submitted.")] = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8080,
    rate: RateOption = 50,
    platform: Annotated[
        Path | None, typer.Option(help="Profile of the platform that runs are submitted to; without it, they run here.")
    ] = None,
    kubernetes_tokens: Annotated[
        list[str], typer.Option(help="Also take tokens of a service account: NAMESPACE:NAME=SCOPE[,SCOPE]; repeatable.")
    ] = [],  # noqa: B006 - Typer copies it
) -> None:
    """Serve the registry of a store, and runs of a project, until SIGINT or SIGTERM."""
    if context.invoked_subcommand:
        return
    from gatehouse.project.platforms import load_platform
    from gatehouse.project.project import load_project
    from gatehouse.server.app import create_app
    from gatehouse.tracking.mlflow_client import load_mlflow

    folder = project_folder(project).resolve() if project else None
    if platform and not folder:
        raise ConfigurationError("--platform: expected --project too, whose runs are submitted there, found none.")
    profile = load_platform(platform) if platform else None
    opened = open_store(store or profile.store if profile else store_address(store, folder))
    load_mlflow()  # Now, while there is one thread: a promotion writes to it.
    project_file = load_project(folder) if folder else None
    accounts = _accounts(kubernetes_tokens) if kubernetes_tokens else None
    _serve(create_app(opened, project_file, _rate(rate), platform and platform.resolve(), accounts), host, port)


def _accounts(texts: list[str]) -> ServiceAccounts:
    """The service accounts that may call, and the API of the cluster that knows their tokens."""
    from gatehouse.launchers.kubernetes.api import ApiTimeouts, KubernetesApi

    scopes: dict[str, tuple[Scope, ...]] = {}
    for text in texts:
        form = re.fullmatch(r"(?P<account>[a-z0-9-]+:[a-z0-9.-]+)=(?P<scopes>[a-z]+(,[a-z]+)*)", text)
        named = form["scopes"].split(",") if form else []
        if not form or not set(named) <= set(SCOPES):
            raise ConfigurationError(
                f"--kubernetes-tokens: expected NAMESPACE:NAME=SCOPE[,SCOPE] of {', '.join(SCOPES)}, found {text!r}."
            )
        scopes[form["account"]] = tuple(scope for scope in SCOPES if scope in named)
    api = KubernetesApi(ApiTimeouts(request=5, retry=10))
    return ServiceAccounts(scopes, partial(api.create, "/apis/authentication.k8s.io/v1/tokenreviews"))


def _rate(per_second: float) -> Rate:
    return Rate(per_second, max(1, round(2 * per_second)))


def _serve(app: Any, host: str, port: int, drain: float = 0.0) -> None:
    from gatehouse.server.draining import DrainingServer

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    with suppress(KeyboardInterrupt):
        DrainingServer(app, host, port, drain).run()


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
def list_tokens(store: StoreBesideProjectOption = "", as_json: JsonOption = False) -> None:
    """List the tokens of a store: who, what for, until when."""
    show(list(tokens_of(open_store(store)).values()), as_json, empty="The store has no tokens.")


@token.command("revoke")
def revoke(
    number: Annotated[str, typer.Argument(metavar="ID", help="The id, as `gatehouse serve token list` shows it.")],
    store: StoreBesideProjectOption = "",
) -> None:
    """Take a token back; every server of the store refuses it within a second or two."""
    revoked = revoke_token(open_store(store), number)
    typer.echo(f"The token {revoked.id} of {revoked.name} is revoked.")


def predictor(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="NAME for its champion, canary and shadow; or NAME:2.")],
    store: StoreOption = "",
    online: Annotated[bool, typer.Option("--online", help="Also take keys alone: read the online store.")] = False,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8080,
    tokens: Annotated[bool, typer.Option("--tokens", help="Answer only callers with a token of the store.")] = False,
    rate: RateOption = 1000,
    follow: Annotated[float, typer.Option(min=0, help="Seconds between looks at where an alias is; 0 for none.")] = 10,
    log: Annotated[
        str, typer.Option(help="Log each row in the store, with `all` features, their `digest`, or `none`.")
    ] = "",
    interleave: Annotated[
        bool, typer.Option("--interleave", help="Of a ranking: champion and canary order the canary's groups together.")
    ] = False,
    log_share: Annotated[float, typer.Option(min=0, max=1, help="Share of the keys whose rows are logged.")] = 1.0,
    spool: Annotated[
        Path | None, typer.Option(help="Folder for rows that are not sent yet; best one that stays.")
    ] = None,
    drain: Annotated[float, typer.Option(min=0, help="Seconds after a SIGTERM in which it still answers.")] = 0.0,
) -> None:
    """Serve the predictions of a model until SIGINT or SIGTERM; they are those of a batch, to the bit."""
    from gatehouse.registry.naming import named
    from gatehouse.server.inference import ServedModel
    from gatehouse.server.prediction_log import PredictionLog, features_of
    from gatehouse.server.predictor import Following, create_app
    from gatehouse.server.traffic import Traffic

    if not log and (spool or log_share < 1):
        raise ConfigurationError("--log: expected all, digest or none with --log-share and --spool, found no --log.")
    opened, logged = open_store(store), features_of(log) if log else None
    ledger, number = named(opened, model)

    def newer(present: Traffic | None) -> Traffic:
        if not number:
            return Traffic.of(opened, ledger, online, present, interleave)
        unmoved = present and str(named(opened, model).number) == present.champion.version
        return present if present and unmoved else Traffic(ServedModel.of(opened, model, online))

    traffic = newer(None)
    typer.echo(str(traffic), err=True)
    following = Following(traffic, newer if follow and (not number or "@" in model) else None, follow)
    predictions = PredictionLog(opened, ledger.model_name, logged, log_share, spool) if logged else None
    _serve(create_app(following, Access(opened, _rate(rate)) if tokens else None, predictions), host, port, drain)
