"""The output of `gatehouse data show`: an artifact's size, origin, inputs, columns, files and facts."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import yaml
from rich.text import Text

from gatehouse.cli.output import size
from gatehouse.runtime.counting import counted
from gatehouse.store.manifest import Manifest
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

_FILES = 20
_LIST = 12


def description(store: ArtifactStore, reference: Reference, manifest: Manifest) -> Iterator[Text]:
    """The parts of the output; what an artifact does not have is left out."""
    yield Text(", ".join(_counts(manifest)))
    made = _made(store, reference)
    if made:
        yield Text(made, style="dim")
    if manifest.derived_from:
        yield from _section("made from", _pairs(manifest.derived_from))
    if manifest.columns:
        yield from _section("columns", _columns(manifest))
    if manifest.files:
        yield from _section("files", _files(manifest))
    for title, facts in (("configuration", manifest.configuration), ("details", manifest.details)):
        if facts:
            yield from _section(
                title, Text(yaml.safe_dump(_bounded(facts), sort_keys=True, allow_unicode=True).rstrip())
            )


def _section(title: str, body: Text) -> Iterator[Text]:
    yield Text(f"\n{title}", style="bold")
    yield body


def _counts(manifest: Manifest) -> Iterator[str]:
    if manifest.rows is not None:
        yield counted(manifest.rows, "row")
    if manifest.columns:
        yield f"{len(manifest.columns):,} columns"
    yield f"{len(manifest.files):,} files" if len(manifest.files) != 1 else "1 file"
    yield size(sum(entry.bytes for entry in manifest.files))


def _made(store: ArtifactStore, reference: Reference) -> str:
    """In which run and when it was first made; empty if there is no record."""
    key = next(iter(store.objects.list(f"provenance/{reference}")), None)
    if key is None:
        return ""
    body: dict[str, Any] = json.loads(store.objects.get_bytes(key))
    when = datetime.fromtimestamp(float(body["at"]), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    run = f" in run {body['run']}" if body.get("run") else ""
    return f"made by stage {body['stage']}{run}, {when}"


def _pairs(pairs: dict[str, str]) -> Text:
    return _aligned([(role, value) for role, value in sorted(pairs.items())])


def _columns(manifest: Manifest) -> Text:
    return _aligned([(column.name, column.type) for column in manifest.columns])


def _files(manifest: Manifest) -> Text:
    lines = [
        (entry.path, size(entry.bytes) + (f", {counted(entry.rows, 'row')}" if entry.rows is not None else ""))
        for entry in manifest.files[:_FILES]
    ]
    return _aligned(
        lines + ([("and more", f"{len(manifest.files) - _FILES:,}")] if len(manifest.files) > _FILES else [])
    )


def _aligned(rows: list[tuple[str, str]]) -> Text:
    """Names and values in two columns; values are not cut, because references must be complete to be copied."""
    width = max(len(name) for name, _ in rows)
    return Text("\n").join(Text.assemble(f"  {name:<{width}}  ", (value, "dim")) for name, value in rows)


def _bounded(value: Any) -> Any:
    """The same with long lists cut: `--json` prints them complete."""
    if isinstance(value, dict):
        return {key: _bounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        more = [f"and {len(value) - _LIST:,} more"] if len(value) > _LIST else []
        return [*map(_bounded, value[:_LIST]), *more]
    return value
