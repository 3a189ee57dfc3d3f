"""Finds the earlier feature tables that those of a snapshot are added to, and remembers the choice.

The choice is a record, `feature-parents/<project>/<n>.json`, beside the artifacts: a run on an unchanged source must
choose as the first one did, whatever was computed since.
"""

from datetime import datetime

from gatehouse.components.artifacts.manifest import Manifest
from gatehouse.components.artifacts.records import read_records
from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.store import ArtifactStore

_RECORDS = "feature-parents"


def find_parent(store: ArtifactStore, project: str, snapshot: str, definitions: str) -> str:
    """Reference of the earlier feature tables; empty for none."""
    folder = f"{_RECORDS}/{project}"
    wanted = {"snapshot": snapshot, "definitions": definitions}
    for _, body in sorted(read_records(store.objects, store.objects.list(folder)).items(), reverse=True):
        parent = str(body.get("parent", ""))
        if {name: body.get(name) for name in wanted} == wanted and (not parent or store.exists(parent)):
            return parent
    parent = _newest(store, project, snapshot, definitions)
    store.append(folder, wanted | {"parent": parent})
    return parent


def _newest(store: ArtifactStore, project: str, snapshot: str, definitions: str) -> str:
    """Prefers the newest moment, then the same snapshot, then the same definitions."""
    now = store.manifest(snapshot)
    found: list[tuple[datetime, bool, bool, str]] = []
    for reference in store.references("feature-tables", project):
        manifest = store.manifest(reference)
        if not _fits(store, manifest, snapshot, now) or not all(map(store.exists, manifest.derived_from.values())):
            continue
        same = manifest.derived_from["snapshot"] == snapshot
        alike = manifest.derived_from["definitions"] == definitions
        if not (same and alike):
            found.append((datetime.fromisoformat(manifest.details["as_of"]), same, alike, str(reference)))
    return max(found)[3] if found else ""


def _fits(store: ArtifactStore, manifest: Manifest, snapshot: str, now: Manifest) -> bool:
    """Whether tables are of this snapshot, or of an older one of the same source that begins where it begins."""
    other = manifest.derived_from["snapshot"]
    if other == snapshot:
        return True
    if Reference.parse(other).name != Reference.parse(snapshot).name or not store.exists(other):
        return False
    then = store.manifest(other)
    starts = [str(one.details.get("window", "")).split("/")[0] for one in (then, now)]
    older = datetime.fromisoformat(then.details["as_of"]) < datetime.fromisoformat(now.details["as_of"])
    return starts[0] == starts[1] and older
