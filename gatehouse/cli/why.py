"""`gatehouse why`: the contents of a stage's key, and for two runs, why the second did not reuse the first's result."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple

import typer
from pydantic import BaseModel

from gatehouse.cli.output import JsonOption, StoreOption, print_facts, print_json, print_rows, short
from gatehouse.configuration.strict import models_in
from gatehouse.configuration.yaml_lines import nearest
from gatehouse.errors import ConfigurationError
from gatehouse.project.place import open_store
from gatehouse.runtime.redaction import redacted, without_secrets
from gatehouse.store.identity import is_operational
from gatehouse.store.records import changes, read_record
from gatehouse.store.reference import references_in
from gatehouse.store.run import Event, events
from gatehouse.store.stage import declared_stages
from gatehouse.store.store import ArtifactStore

_PARTS = ("modules", "distributions")
_NEWEST = 5
_ENDED = {"hit": "came from the memo", "finished": "ran", "failed": "failed", "stopped": "was stopped"}


class Difference(NamedTuple):
    """A difference between the keys of two runs: the kind of item, its name, and its values; None if not in the key."""

    part: str
    name: str
    first: Any
    second: Any


def why(
    stage: Annotated[str, typer.Argument(help="A stage, such as train; or a part of one, such as validate:measure.")],
    first: Annotated[str, typer.Argument(help="A run; with a second one, they are compared.")] = "",
    second: Annotated[str, typer.Argument(help="Another run.")] = "",
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Say what a stage's result depends on; with one run, what it depended on there; with two, what differs.

    A stage runs where its key is new. A key holds the code that decides, the versions of the packages that this code
    imports, and the request: references of inputs, and the configuration.
    """
    if store:
        open_store(store)  # A mistyped address is an error also where nothing is read from it.
    if not first:
        stages, name = declared_stages(), stage.rpartition(":")[2]
        if name not in stages:
            expected = ", ".join(sorted(stages))
            raise ConfigurationError(f"There is no stage {stage!r}{nearest(name, stages)}: expected one of {expected}.")
        declared = stages[name]
        # Alternative models, such as architectures, have fields with the same names.
        left_out = sorted(set(_operational(declared.request)))
        fields = sorted(set(declared.request.model_fields) - set(left_out))
        body: dict[str, Any] = {"fields": fields, "left_out": left_out}
        effects = declared.declared.effects
        body |= declared.sources().to_json() | {"memo": effects.memo, "why": effects.why}
        print_json(body) if as_json else _print_code(stage, body)
        return
    opened = open_store(store)
    runs = {}
    for run in filter(None, (first, second)):
        ended = [event for _, event in events(opened, run) if event.event in _ENDED and "key" in event.body]
        attempts = [event for event in ended if event.stage == stage]
        if not attempts:
            keyed = ", ".join(sorted({event.stage for event in ended}))
            newest = sorted({key.split("/")[1] for key in opened.objects.list("runs")})[-_NEWEST:]
            raise ConfigurationError(
                f"Run {run} has no key of {stage}: it has those of {keyed or 'no stage'}. A stage that did not end, or "
                f"that has no memo, has none. The newest runs of {opened.address} are "
                f"{', '.join(newest[::-1]) or 'none'}."
            )
        runs[run] = max(attempts, key=lambda event: event.attempt)
    if len(runs) == 1:
        ((run, event),) = runs.items()
        body = {"event": event.event, **{name: event.body[name] for name in ("key", "code", "outside", "request")}}
        if as_json:
            print_json(body)
            return
        typer.echo(f"{stage} {_ENDED[event.event]} in {run}.")
        facts = [(name, body[name]) for name in ("key", "code", "outside") if body[name]]
        print_facts([*facts, *((name, _text(value)) for name, value in _leaves(body["request"]))])
        return
    differences = list(_differences(opened, runs[first], runs[second]))
    if as_json:
        print_json([difference._asdict() for difference in differences])
        return
    event = runs[second]
    if not differences:
        again = "came from the memo" if event.event == "hit" else "was forced, or an artifact of the first was gone"
        typer.echo(f"{stage} has the same key in both runs. In {second} it {again}.")
        return
    typer.echo(f"{stage} {_ENDED[event.event]} in {second}, under another key than in {first}:")
    rows = []
    for difference in differences:
        missing = "default" if difference.part in ("field", "input") else ""
        values = (missing if value is None else short(_text(value)) for value in (difference.first, difference.second))
        rows.append((difference.part, difference.name, *values))
    print_rows(("", "", first, second), rows)
    inputs = references_in([difference.second for difference in differences if difference.part == "input"])
    records = (key for reference in inputs for key in opened.objects.list(f"provenance/{reference}"))
    makers = {str((read_record(opened.objects, key) or {}).get("stage", "")) for key in records}
    for maker in sorted(makers - {""}):  # The stages that made the inputs that differ.
        typer.echo(f"Why that input differs: gatehouse why {maker} {first} {second}")


def _operational(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """The fields that are in no key, including those of nested models, as `spec.timeout`."""
    for name, field in model.model_fields.items():
        if is_operational(field):
            yield path + name
        else:
            for inner in dict.fromkeys(models_in(field.annotation)):
                yield from _operational(inner, f"{path}{name}.")


def _print_code(stage: str, body: Mapping[str, Any]) -> None:
    if not body["memo"]:
        typer.echo(f"{stage} runs every time. {body['why']}")
        return
    typer.echo(f"{stage} runs again where one of these changes.")
    for part in ("fields", *_PARTS):
        typer.echo(f"\n{part} ({len(body[part])})")
        if part == "modules":
            for folder, count in Counter(name.rpartition(".")[0] or name for name in body[part]).items():
                typer.echo(f"  {folder} ({count})")
            continue
        for name in body[part]:
            typer.echo(f"  {name}" if part == "fields" else f"  {name} {short(_text(body[part][name]))}")
    if body["left_out"]:
        typer.echo(f"\nfields that change no result, and no key ({len(body['left_out'])})")
        typer.echo("".join(f"  {name}\n" for name in body["left_out"]), nl=False)


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
    codes = [read_record(store.objects, f"code/{event.body['code']}.json") or {} for event in (first, second)]
    for name, a, b in changes(first.body["request"], second.body["request"]):
        yield Difference("input" if references_in([a, b]) else "field", name, a, b)
    if first.body["code"] != second.body["code"] and all(codes):
        for part in _PARTS:
            for change in changes(codes[0][part], codes[1][part]):
                yield Difference(part.removesuffix("s"), *change)
    elif first.body["code"] != second.body["code"]:
        name = "what it was made of is not recorded in this store"
        yield Difference("code", name, first.body["code"], second.body["code"])
    outside = [event.body["outside"] for event in (first, second)]
    if outside[0] != outside[1]:
        yield Difference("own code", "the package of yours that the request names", *outside)


def _text(value: Any) -> str:
    return redacted(value if isinstance(value, str) else json.dumps(without_secrets(value)))
