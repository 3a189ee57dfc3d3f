"""The page of an artifact whose stage draws none: its numbers as bars, its columns and files, what it was made from."""

from collections.abc import Iterator, Mapping
from typing import Any

from gatehouse.reports.format import is_number
from gatehouse.reports.page import Report
from gatehouse.reports.row_charts import bar_chart
from gatehouse.store.canonical import canonical_json
from gatehouse.store.manifest import Manifest
from gatehouse.store.store import ArtifactStore

_LARGEST = 1 << 20
_MOST_BARS = 100


def page(store: ArtifactStore, reference: str) -> str:
    """The page of any artifact, as HTML.

    A JSON file that is an object of numbers, such as a count by month, is drawn as one bar for each of its keys.

    Args:
        store: Where the artifact is.
        reference: Of the artifact.
    """
    manifest = store.manifest(reference)
    rows = "" if manifest.rows is None else f"{manifest.rows:,} rows"
    drawn = Report(f"{manifest.kind} of {manifest.name}", rows)
    for path, numbers in _numbers(store, reference, manifest):
        bars = list(numbers.items())[:_MOST_BARS]
        left_out = f", the first {len(bars)} of {len(numbers):,}" if len(numbers) > len(bars) else ""
        drawn.section(path.removesuffix(".json")).figure(bar_chart(bars), f"The numbers in {path}{left_out}.")
    if manifest.columns:
        columns = [[one.name, one.type, "yes" if one.nullable else "no"] for one in manifest.columns]
        drawn.section("Columns").table(["column", "type", "may be null"], columns)
    if manifest.files:
        drawn.section("Files").table(
            ["file", "bytes", "rows"], [[one.path, one.bytes, one.rows] for one in manifest.files]
        )
    told = {"Made from": manifest.derived_from, "Configuration": manifest.configuration, "Details": manifest.details}
    for title, facts in told.items():
        if shown := {name: _text(value) for name, value in facts.items() if value not in ("", [], {})}:
            drawn.section(title).facts(shown)
    return drawn.html()


def _numbers(store: ArtifactStore, reference: str, manifest: Manifest) -> Iterator[tuple[str, Mapping[str, float]]]:
    """Every JSON file that is an object of numbers, by its path."""
    for file in manifest.files:
        if file.path.endswith(".json") and file.bytes <= _LARGEST:
            body = store.read_json(reference, file.path)
            if isinstance(body, dict) and body and all(is_number(value) for value in body.values()):
                yield file.path, body


def _text(value: Any) -> str:
    return value if isinstance(value, str) else canonical_json(value)
