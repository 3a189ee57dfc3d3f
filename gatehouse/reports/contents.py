"""The page of an artifact whose stage has no page of its own: numbers as bars, columns, files, and its origin."""

from gatehouse.reports.format import is_number
from gatehouse.reports.page import render
from gatehouse.store.canonical import canonical_json
from gatehouse.store.store import ArtifactStore

_LARGEST = 1 << 20
_MOST_BARS = 100


def page(store: ArtifactStore, reference: str) -> str:
    """The page of any artifact; a JSON file that is an object of numbers becomes one bar for each of its keys."""
    manifest = store.manifest(reference)
    charts = []
    for file in manifest.files:
        if file.path.endswith(".json") and file.bytes <= _LARGEST:
            body = store.read_json(reference, file.path)
            if isinstance(body, dict) and body and all(is_number(value) for value in body.values()):
                charts.append((file.path, list(body.items())[:_MOST_BARS], len(body)))
    tables = {"Made from": manifest.derived_from, "Configuration": manifest.configuration, "Details": manifest.details}
    facts = {
        heading: {
            name: value if isinstance(value, str) else canonical_json(value)
            for name, value in values.items()
            if value not in ("", [], {})
        }
        for heading, values in tables.items()
    }
    subtitle = "" if manifest.rows is None else f"{manifest.rows:,} rows"
    title = f"{manifest.kind} of {manifest.name}"
    return render("contents.html", title, subtitle, charts=charts, manifest=manifest, facts=facts)
