"""`gatehouse features push`: writes rows from messages to the online store and the pushed feature tables."""

import os
from datetime import timedelta
from typing import Annotated

import typer
from rich.table import Table

from gatehouse.cli.feature_project import ProjectOption, moment, open_features, store_of
from gatehouse.cli.output import JsonOption, StoreBesideProjectOption, print_json, print_table
from gatehouse.errors import ConfigurationError
from gatehouse.runtime.counting import counted
from gatehouse.runtime.redaction import names_password, require_encoded

FromOption = Annotated[
    list[str],
    typer.Option(
        "--from",
        metavar="TABLE=URL",
        help="A raw table and its stream, redis://host:port/0?stream=<key> or kafka://host:port?topic=<name>; or the "
        "name of an environment variable that holds the URL, where it has a password. May be given several times.",
    ),
]


def push(
    source: FromOption,
    view: Annotated[list[str] | None, typer.Option(help="A feature view; default: all that can be pushed.")] = None,
    interval: Annotated[
        float, typer.Option(min=0.001, help="Seconds of the streams' clock: what arrives within them is a micro-batch.")
    ] = 1.0,
    wait: Annotated[float, typer.Option(min=0.01, help="Seconds of silence after which an interval is over.")] = 1.0,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End when nothing arrives for that long; default: go on for ever.")
    ] = False,
    project: ProjectOption = None,
    store: StoreBesideProjectOption = "",
    as_json: JsonOption = False,
) -> None:
    """Push what arrives in streams, on top of the newest feature tables; killed, it goes on where it was."""
    from gatehouse.data.validation.sensitivity import sensitive_columns
    from gatehouse.online.store import open_online
    from gatehouse.online.streaming.batch_folder import COUNTS, BatchFolder, BatchState, streams_folder
    from gatehouse.online.streaming.pusher import Pusher, push_streams, start_from
    from gatehouse.online.streaming.stream import MessageStream, open_stream
    from gatehouse.store.hidden_values import hiding

    urls = _urls(source)
    opened = open_features(project)
    artifacts = store_of(store, opened)
    tables = opened.tables(artifacts, map(opened.view, view or opened.repository.views))
    start = start_from(artifacts, str(tables.reference))
    folder = streams_folder(artifacts, opened.project.name, tables.reference)
    online = open_online(artifacts, opened.project.name, opened.repository.folder)
    pusher = Pusher(opened.repository, start, BatchFolder(folder), online, [*urls], view or ())

    def streams(state: BatchState) -> dict[str, MessageStream]:
        return {
            table: open_stream(url, start.group, start.as_of, state.positions.get(table, {}))
            for table, url in urls.items()
        }

    def report(state: BatchState) -> None:
        if not as_json:
            rows, misfits = (sum(counts[name] for counts in state.counts.values()) for name in ("rows", "misfits"))
            until = moment(state.as_of.isoformat(timespec="seconds"))
            typer.echo(
                f"batch {state.number}: {counted(rows, 'row')} and {misfits} misfits so far, known until {until}"
            )

    with hiding(lambda: sensitive_columns(artifacts, tables.reference)):
        state = push_streams(
            pusher,
            streams,
            interval=timedelta(seconds=interval),
            wait=wait,
            until_idle=until_idle,
            progress=report,
        )
    if as_json:
        print_json({"folder": str(folder), "as_of": state.as_of.isoformat(), "counts": state.counts})
        return
    table = Table("table", box=None, pad_edge=False)
    for name in COUNTS:
        table.add_column(name, justify="right")
    for streamed, counts in state.counts.items():
        table.add_row(streamed, *(f"{counts[name]:,}" for name in COUNTS))
    print_table(table)
    typer.echo(
        f"\nknown until {moment(state.as_of.isoformat(timespec='seconds'))}; pushed tables in "
        f"{folder / 'current' / 'tables'}; reasons of misfits in {folder / 'misfits'}"
    )


def _urls(options: list[str]) -> dict[str, str]:
    urls: dict[str, str] = {}
    for option in options:
        table, equals, address = option.partition("=")
        if not equals or not table or table in urls:
            raise ConfigurationError(f"--from: expected <table>=<URL>, each table once, found {table!r}.")
        if "://" in address and names_password(address):
            raise ConfigurationError(
                f"--from {table}: the URL holds a password, which others can see. Put it into an environment variable "
                "and name that instead."
            )
        if "://" not in address and address not in os.environ:
            raise ConfigurationError(f"--from {table}: expected a URL or the name of a set variable, found neither.")
        urls[table] = require_encoded(address if "://" in address else os.environ[address], f"--from {table}")
    return urls
