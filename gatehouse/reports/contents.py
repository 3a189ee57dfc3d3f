"""The page of an artifact, drawn in the present style, and the page of any artifact without one of its own."""

import logging
import shutil
from pathlib import Path

from gatehouse.errors import GatehouseError
from gatehouse.reports.format import is_number
from gatehouse.reports.page import Verdict, render
from gatehouse.store.canonical import canonical_json
from gatehouse.store.objects.local import LocalObjects
from gatehouse.store.pages import draw
from gatehouse.store.reference import Reference
from gatehouse.store.stage import CONTENTS, STAGES, declared_stages
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)

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
    restarts = [
        line for body in store.measurements(reference, "launch") for line in body.get("place", {}).get("restarts", ())
    ]
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
    return render("contents.html", title, subtitle, charts=charts, manifest=manifest, facts=facts, restarts=restarts)


def has_page(reference: Reference) -> bool:
    """Whether a stage declares a page for artifacts of this kind; `rendered` draws one for any other too."""
    return _page(reference.kind) is not None


def rendered(store: ArtifactStore, reference: Reference | str) -> Path:
    """The HTML file of an artifact's page: the one in the store where the store is on this machine, else a copy.

    The page is the one that a stage declares for the kind; without one it shows what the artifact contains. Raises
    MissingArtifactError, CorruptArtifactError if the artifact is not there or not what its reference says.
    """
    reference = Reference.parse(str(reference))
    store.manifest(reference)
    key = draw(store, reference, _page(reference.kind) or CONTENTS)
    local = Path(store.address) / key
    if "://" not in store.address and local.is_file():
        return local
    copies = LocalObjects(store.local_folder)
    copies.put_bytes(key, store.objects.get_bytes(key))
    return copies.local_path(key)


def write_page(store: ArtifactStore, reference: str, path: str) -> None:
    """Write an artifact's page to a file; if it cannot be drawn, one that says so, as no result depends on pages.

    Raises as `rendered` if the artifact is not there or not what its reference says.
    """
    try:
        shutil.copyfile(rendered(store, reference), path)
    except GatehouseError:
        raise
    except Exception as error:
        logger.warning("The page of %s was not drawn.", reference, exc_info=error)
        text = f"The page could not be drawn: {type(error).__name__}. The log of the task says why."
        Path(path).write_text(render("report.html", reference, "", Verdict("warn", text)), encoding="utf-8")


def _page(kind: str) -> str | None:
    """The function that draws artifacts of a kind; a stage that is loaded already spares the others their import."""
    for stages in (STAGES, None):
        for stage in (declared_stages() if stages is None else stages).values():
            if kind in stage.declared.pages:
                return stage.declared.pages[kind]
    return None
