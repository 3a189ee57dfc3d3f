"""`gatehouse why`: the contents of a stage's key, and for two runs, why the second did not reuse the first's result."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple

import typer
from pydantic import BaseModel
from rich.table import Table
from rich.text import Text

from gatehouse.cli.output import JsonOption, StoreOption, open_store, print_json, print_table
from gatehouse.configuration.strict import models_in
from gatehouse.configuration.yaml_lines import nearest
from gatehouse.errors import ConfigurationError
from gatehouse.runtime.redaction import redacted, without_secrets
from gatehouse.store.identity import is_operational
from gatehouse.store.json_changes import changes
from gatehouse.store.records import read_record
from gatehouse.store.reference import Reference, references_in
from gatehouse.store.run import Event, events
from gatehouse.store.stage import Stage, declared_stages
from gatehouse.store.store import ArtifactStore

_PARTS = ("modules", "distributions", "formats")
_NEWEST = 5
_ENDS = ("hit", "finished", "failed", "stopped")
_ENDED = {"hit": "came from the memo", "finished": "ran", "failed": "failed", "stopped": "was stopped"}


class Difference(NamedTuple):
    """One difference between the keys of two runs.

    Attributes:
        part: `input`, `field`, `module`, `distribution`, `format`, `code` or `own code`.
        name: Name of the differing item.
        first, second: Its value in each run; None if it is not in the key.
    """

    part: str
    name: str
    first: Any
    second: Any


def why(
    stage: Annotated[str, typer.Argument(help="A stage, such as train; or a part of one, such as validate:measure.")],
    first: Annotated[str, typer.Argument(help="A run; with a second one, they are compared.")] = "",
    second: Annotated[str, typer.Argument(help="Another run.")] = "",
    modules: Annotated[
        bool, typer.Option("--modules", help="Without a run: list every module, not the folders.")
    ] = False,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Say what a stage's result depends on; with one run, what it depended on there; with two, what differs.

    A stage runs where its key is new. A key holds the code that decides, the versions of the packages that this code
    imports, and the request: references of inputs, and the configuration.
    """
    if store:
        open_store(store)  # Also where nothing is read there: no mistyped address is passed over.
    if not first:
        body = _of_code(_declared(stage))
        print_json(body) if as_json else _print_code(stage, body, modules)
        return
    opened = open_store(store)
    runs = {run: _ended(opened, run, stage) for run in (first, second) if run}
    if len(runs) == 1:
        ((run, event),) = runs.items()
        body = {"event": event.event, **{name: event.body[name] for name in ("key", "code", "outside", "request")}}
        print_json(body) if as_json else _print_run(stage, run, body)
        return
    found = list(_differences(opened, runs[first], runs[second]))
    if as_json:
        print_json([each._asdict() for each in found])
    else:
        _print_differences(opened, stage, runs, found)


def _declared(stage: str) -> Stage[Any, Any]:
    stages = declared_stages()
    name = stage.rpartition(":")[2]
    if name not in stages:
        known = ", ".join(sorted(stages))
        raise ConfigurationError(f"There is no stage {stage!r}{nearest(name, stages)}: expected one of {known}.")
    return stages[name]


def _of_code(stage: Stage[Any, Any]) -> dict[str, Any]:
    # Alternative models, such as architectures, have fields with the same names.
    left_out = sorted(set(_operational(stage.request)))
    body = {"fields": sorted(set(stage.request.model_fields) - set(left_out)), "left_out": left_out}
    effects = stage.declared.effects
    return body | stage.sources().to_json() | {"memo": effects.memo, "why": effects.why}


def _operational(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """The fields that are in no key, including those of nested models, as `spec.timeout`."""
    for name, field in model.model_fields.items():
        if is_operational(field):
            yield path + name
        else:
            for inner in dict.fromkeys(models_in(field.annotation)):
                yield from _operational(inner, f"{path}{name}.")


def _print_code(stage: str, body: Mapping[str, Any], each_module: bool) -> None:
    if not body["memo"]:
        typer.echo(f"{stage} runs every time. {body['why']}")
        return
    typer.echo(f"{stage} runs again where one of these changes.")
    for part in ("fields", *_PARTS):
        typer.echo(f"\n{part} ({len(body[part])})")
        if part == "modules" and not each_module:
            for folder, count in Counter(name.rpartition(".")[0] or name for name in body[part]).items():
                typer.echo(f"  {folder} ({count})")
            continue
        for name in body[part]:
            value = "" if part in ("fields", "modules") else f" {_short(body[part][name])}"
            typer.echo(f"  {name}{value}")
    if body["left_out"]:
        typer.echo(f"\nfields that change no result, and no key ({len(body['left_out'])})")
        for name in body["left_out"]:
            typer.echo(f"  {name}")


def _ended(store: ArtifactStore, run: str, stage: str) -> Event:
    """How the newest attempt at a stage ended in a run.

    Raises:
        ConfigurationError: if the run has no such stage with a key.
    """
    ended = [event for _, event in events(store, run) if event.event in _ENDS and "key" in event.body]
    found = [event for event in ended if event.stage == stage]
    if not found:
        raise ConfigurationError(_missing(store, run, stage, sorted({event.stage for event in ended})))
    return max(found, key=lambda event: event.attempt)


def _missing(store: ArtifactStore, run: str, stage: str, keyed: list[str]) -> str:
    """Why a run has no key of a stage: there is no such run, it ended before the stage, or the stage has no memo."""
    happened = [event for _, event in events(store, run)]
    if not happened:
        runs = sorted({key.split("/")[1] for key in store.objects.list("runs")})
        newest = ", ".join(runs[-_NEWEST:][::-1]) or "none"
        return (
            f"Run {run}: expected a run of the store {store.address}, found none of this id. The newest are {newest}."
        )
    told = f"It has the keys of {', '.join(keyed)}." if keyed else "No stage of it ended."
    if any(event.stage == stage and event.event in _ENDS for event in happened):
        return f"Run {run}: {stage} ended, and has no key: it has no memo and runs every time. {told}"
    failed = [event for event in happened if event.event == "failed"]
    end = f"{failed[-1].stage} failed ({failed[-1].body.get('error', '')})" if failed else "it was stopped, or goes on"
    return f"Run {run}: {stage} did not end in it: {end}. {told}"


def _print_run(stage: str, run: str, body: Mapping[str, Any]) -> None:
    typer.echo(f"{stage} {_ENDED[body['event']]} in {run}.")
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, title in (("key", "key"), ("code", "code"), ("outside", "own code")):
        if body[name]:
            table.add_row(Text(title, style="dim"), Text(body[name]))
    for name, value in _leaves(body["request"]):
        table.add_row(Text(name, style="dim"), Text(_text(value)))
    print_table(table)


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}" if path else name)
    else:
        yield path, value


def _differences(store: ArtifactStore, first: Event, second: Event) -> Iterator[Difference]:
    """Everything that is in only one of two keys, or has different values."""
    if first.body["key"] == second.body["key"]:
        return
    codes = [_recorded(store, event.body["code"]) for event in (first, second)]
    for name, a, b in changes(first.body["request"], second.body["request"]):
        yield Difference("input" if references_in([a, b]) else "field", name, a, b)
    if first.body["code"] != second.body["code"] and all(codes):
        for part in _PARTS:
            changed = changes(codes[0][part], codes[1][part])
            yield from (Difference(part.removesuffix("s"), *each) for each in changed)
    elif first.body["code"] != second.body["code"]:
        name = "what it was made of is not recorded in this store"
        yield Difference("code", name, first.body["code"], second.body["code"])
    outside = [event.body["outside"] for event in (first, second)]
    if outside[0] != outside[1]:
        yield Difference("own code", "the package of yours that the request names", *outside)


def _recorded(store: ArtifactStore, code: str) -> dict[str, Any]:
    return read_record(store.objects, f"code/{code}.json") or {}


def _print_differences(store: ArtifactStore, stage: str, runs: Mapping[str, Event], found: list[Difference]) -> None:
    (first, _), (second, event) = runs.items()
    if not found:
        again = "came from the memo" if event.event == "hit" else "was forced, or an artifact of the first was gone"
        typer.echo(f"{stage} has the same key in both runs. In {second} it {again}.")
        return
    typer.echo(f"{stage} {_ENDED[event.event]} in {second}, under another key than in {first}:")
    table = Table("", "", first, second, box=None, pad_edge=False)
    for each in found:
        missing = "default" if each.part in ("field", "input") else ""
        values = (missing if value is None else _short(value) for value in (each.first, each.second))
        table.add_row(Text(each.part, style="dim"), Text(each.name, style="bold"), *map(Text, values))
    print_table(table)
    makers = {_maker(store, each.second) for each in found if each.part == "input"} - {""}
    for maker in sorted(makers):
        typer.echo(f"Why that input differs: gatehouse why {maker} {first} {second}")


def _maker(store: ArtifactStore, value: Any) -> str:
    """The stage that made the first reference in a value; empty if unknown."""
    for reference in references_in([value]):
        for key in store.objects.list(f"provenance/{reference}"):
            return str((read_record(store.objects, key) or {}).get("stage", ""))
    return ""


def _short(value: Any) -> str:
    """A value for a table, with digests shortened."""
    if isinstance(value, str) and references_in([value]):
        return Reference.parse(value).short
    text = _text(value)
    return f"{text[:12]}…" if len(text) == 64 and " " not in text else text


def _text(value: Any) -> str:
    return redacted(value if isinstance(value, str) else json.dumps(without_secrets(value)))
