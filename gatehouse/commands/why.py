"""`gatehouse why`: what is in a stage's key, and for two runs, why the second did not find what the first had made."""

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from gatehouse.commands.output import JsonOption, StoreOption, open_store, print_json
from gatehouse.commands.run import DEFAULT_STORE
from gatehouse.components.artifacts.run import Event, events
from gatehouse.components.artifacts.stage import declared_stages
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.errors import ConfigurationError

_PARTS = ("modules", "distributions", "formats")


def why(
    stage: Annotated[str, typer.Argument(help="A stage, such as train; or a part of one, such as validate:measure.")],
    first: Annotated[str, typer.Argument(help="A run; with a second one, they are compared.")] = "",
    second: Annotated[str, typer.Argument(help="Another run.")] = "",
    store: StoreOption = str(DEFAULT_STORE),
    as_json: JsonOption = False,
) -> None:
    """Say what a stage's result depends on; with one run, what it depended on there; with two, what differs.

    A stage runs where its key is new. A key holds the code that decides, the versions of the packages that this code
    imports, and the request: references of inputs, and the configuration.
    """
    if not first:
        body = _of_code(_declared(stage))
        print_json(body) if as_json else _print_code(stage, body)
        return
    opened = open_store(store)
    runs = [_ended(opened, run, stage) for run in (first, second) if run]
    if len(runs) == 1:
        body = {"event": runs[0].event, **{name: runs[0].body[name] for name in ("key", "code", "request")}}
        print_json(body)
        return
    found = list(_differences(opened, *runs))
    if as_json:
        print_json([{"part": part, "name": name, "first": a, "second": b} for part, name, a, b in found])
        return
    if not found:
        same = "from the memo" if runs[1].event == "hit" else "forced, or its artifact was gone"
        typer.echo(f"{stage}: both runs have the same key; in {second} it was {same}.")
    for part, name, a, b in found:
        typer.echo(f"{part} {name}: {_short(a)} -> {_short(b)}")


def _declared(stage: str) -> Any:
    stages = declared_stages()
    if stage not in stages:
        raise ConfigurationError(f"There is no stage {stage!r}: expected one of {', '.join(sorted(stages))}.")
    return stages[stage]


def _of_code(stage: Any) -> dict[str, Any]:
    body: dict[str, Any] = stage.sources().to_json()
    return body | {"memo": stage.declared.effects.memo, "why": stage.declared.effects.why}


def _print_code(stage: str, body: Mapping[str, Any]) -> None:
    if not body["memo"]:
        typer.echo(f"{stage} runs every time. {body['why']}")
        return
    typer.echo(f"{stage} runs again where one of these changes: its request, and")
    for part in _PARTS:
        typer.echo(f"\n{part} ({len(body[part])})")
        for name, value in body[part].items():
            typer.echo(f"  {name} {_short(value)}" if part != "modules" else f"  {name}")


def _ended(store: ArtifactStore, run: str, stage: str) -> Event:
    """How the newest attempt at a stage ended in a run."""
    found = [event for _, event in events(store, run) if event.stage == stage and "key" in event.body]
    if not found:
        known = sorted({event.stage for _, event in events(store, run) if "key" in event.body})
        raise ConfigurationError(
            f"Run {run}: expected a memoised stage {stage!r} that ended, found {', '.join(known) or 'no such run'}."
        )
    return max(found, key=lambda event: event.attempt)


def _differences(store: ArtifactStore, first: Event, second: Event) -> Iterator[tuple[str, str, Any, Any]]:
    """Part, name and both values of everything that is in only one of two keys, or differs."""
    yield from (("request", *each) for each in _changed(first.body["request"], second.body["request"]))
    if first.body["code"] == second.body["code"]:
        return
    codes = [_recorded(store, event.body["code"]) for event in (first, second)]
    for part in _PARTS:
        yield from ((part.removesuffix("s"), *each) for each in _changed(codes[0].get(part), codes[1].get(part)))
    if not all(codes):
        yield (
            "code",
            "digest (not recorded in this store: what it was made of is not known)",
            first.body["code"],
            second.body["code"],
        )


def _recorded(store: ArtifactStore, code: str) -> dict[str, Any]:
    key = f"code/{code}.json"
    if store.objects.stat(key) is None:
        return {}
    body: dict[str, Any] = json.loads(store.objects.get_bytes(key))
    return body


def _changed(first: Any, second: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(first, dict) and isinstance(second, dict):
        for name in sorted({*first, *second}):
            yield from _changed(first.get(name), second.get(name), f"{path}.{name}" if path else name)
    elif first != second:
        yield path, first, second


def _short(value: Any) -> str:
    text = "default" if value is None else value if isinstance(value, str) else json.dumps(value)
    return f"{text[:12]}…" if len(text) == 64 else text
