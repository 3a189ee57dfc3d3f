"""The page of an artifact, drawn in today's style where it was not yet, as a file that a browser opens."""

from pathlib import Path

from gatehouse.store.objects.local import LocalObjects
from gatehouse.store.pages import draw
from gatehouse.store.reference import Reference
from gatehouse.store.stage import CONTENTS, STAGES, declared_stages
from gatehouse.store.store import ArtifactStore


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


def _page(kind: str) -> str | None:
    """What draws artifacts of a kind; a stage that is loaded already spares the others their import."""
    for stages in (STAGES, None):
        for stage in (declared_stages() if stages is None else stages).values():
            if kind in stage.declared.pages:
                return stage.declared.pages[kind]
    return None
