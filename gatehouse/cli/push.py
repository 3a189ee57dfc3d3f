"""`gatehouse features push`: writes rows from messages to the online store and the pushed feature tables."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from gatehouse.cli.feature_project import ProjectOption, moment, open_features, store_of
from gatehouse.cli.output import JsonOption, StoreBesideProjectOption, print_json, print_table
from gatehouse.errors import ConfigurationError
from gatehouse.runtime.counting import counted
from gatehouse.runtime.redaction import names_password, require_encoded

_TOLD = 5  # Number of rejected messages of a batch that are printed one by one.

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
    from gatehouse.online.opening import open_online
    from gatehouse.online.streaming.batch_folder import BatchFolder, BatchState, streams_folder
    from gatehouse.online.streaming.opening import open_stream
    from gatehouse.online.streaming.pusher import Pusher, push_streams
    from gatehouse.online.streaming.start import start_from
    from gatehouse.online.streaming.stream import MessageStream
    from gatehouse.store.hidden_values import hiding

    urls = _urls(source)
    opened = open_features(project)
    found = store_of(store, opened)
    tables = opened.tables(found, map(opened.view, view or opened.repository.views))
    start = start_from(found, str(tables.reference))
    folder = streams_folder(found, opened.project.name, tables.reference)
    aside = _Aside(folder / "misfits.jsonl")
    online = open_online(found, opened.project.name, opened.repository.folder)
    pusher = Pusher(opened.repository, start, BatchFolder(folder), online, [*urls], view or ())

    def streams(state: BatchState) -> dict[str, MessageStream]:
        return {
            table: open_stream(url, start.group, start.as_of, state.positions.get(table, {}))
            for table, url in urls.items()
        }

    def told(state: BatchState) -> None:
        if not as_json:
            rows = counted(sum(counts["rows"] for counts in state.counts.values()), "row")
            typer.echo(f"batch {state.number}: {rows} so far, known until {moment(_whole(state.as_of))}")
            aside.tell()

    with hiding(lambda: sensitive_columns(found, tables.reference)):
        state = push_streams(
            pusher,
            streams,
            interval=timedelta(seconds=interval),
            wait=wait,
            until_idle=until_idle,
            progress=told,
        )
    if as_json:
        print_json({"folder": str(folder), "as_of": state.as_of.isoformat(), "counts": state.counts})
        return
    _print_counts(state.counts)
    typer.echo(f"\nknown until {moment(_whole(state.as_of))}; pushed tables in {folder / 'current' / 'tables'}")


@dataclass
class _Aside:
    """Prints messages that are rejected from now on, with their reasons."""

    path: Path

    def __post_init__(self) -> None:
        self._read = self.path.stat().st_size if self.path.is_file() else 0

    def tell(self) -> None:
        if not self.path.is_file():
            return
        with self.path.open("rb") as file:
            file.seek(self._read)
            found = [json.loads(line) for line in file if line.strip()]
            self._read = file.tell()
        for each in found[:_TOLD]:
            place = "-".join(map(str, each["position"]))
            partition = f" of partition {each['partition']}" if each["partition"] else ""
            typer.echo(f"  set aside: {each['table']}, message {place}{partition}: {each['reason']}")
        if found:
            more = f"{len(found) - _TOLD:,} more; all are" if len(found) > _TOLD else "all are"
            typer.echo(f"  {more} in {self.path}")


def _urls(given: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in given:
        table, equals, place = each.partition("=")
        if not equals or not table or table in found:
            raise ConfigurationError(f"--from: expected <table>=<URL>, each table once, found {table!r}.")
        if "://" in place and names_password(place):
            raise ConfigurationError(
                f"--from {table}: the URL holds a password, which others can see. Put it into an environment variable "
                "and name that instead."
            )
        if "://" not in place and place not in os.environ:
            raise ConfigurationError(f"--from {table}: expected a URL or the name of a set variable, found neither.")
        found[table] = require_encoded(place if "://" in place else os.environ[place], f"--from {table}")
    return found


def _whole(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds")


def _print_counts(counts: Mapping[str, Mapping[str, int]]) -> None:
    table = Table("table", box=None, pad_edge=False)
    names = ("rows", "repeated", "late", "misfits")
    for name in names:
        table.add_column(name, justify="right")
    for each, found in counts.items():
        table.add_row(each, *(f"{found[name]:,}" for name in names))
    print_table(table)
