"""The page of an artifact, drawn in today's style where it was not yet, as a file that a browser opens."""

import tempfile
from pathlib import Path

from gatehouse.components.artifacts.pages import draw
from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.stage import STAGES, declared_stages
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.errors import ConfigurationError


def has_page(reference: Reference) -> bool:
    """Whether artifacts of this kind have a page."""
    return _page(reference.kind) is not None


def rendered(store: ArtifactStore, reference: Reference | str) -> Path:
    """The HTML file of an artifact's page: the one in the store where the store is on this machine, else a copy.

    Raises:
        ConfigurationError: if artifacts of this kind have no page.
        MissingArtifactError, CorruptArtifactError: if the artifact is not there or not what its reference says.
    """
    named = Reference.parse(str(reference))
    page = _page(named.kind)
    if page is None:
        kinds = sorted(kind for stage in declared_stages().values() for kind in stage.declared.pages)
        raise ConfigurationError(f"{named} has no page: expected an artifact of the kinds {', '.join(kinds)}.")
    store.manifest(named)
    return _file(store, draw(store, named, page))


def _page(kind: str) -> str | None:
    """What draws artifacts of a kind; a stage that is loaded already spares the others their import."""
    for stages in (STAGES, None):
        for stage in (declared_stages() if stages is None else stages).values():
            if kind in stage.declared.pages:
                return stage.declared.pages[kind]
    return None


def _file(store: ArtifactStore, key: str) -> Path:
    local = Path(store.address) / key
    if "://" not in store.address and local.is_file():
        return local
    copy = Path(tempfile.gettempdir()) / "gatehouse-pages" / key
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_bytes(store.objects.get_bytes(key))
    return copy
