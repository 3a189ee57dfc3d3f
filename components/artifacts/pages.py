"""Pages beside artifacts: drawn from an artifact, kept under its identity, and drawn again in the style of the day.

A page is for people. It is in no manifest, so that nothing is computed again where only its looks changed.
"""

import importlib
from collections.abc import Iterator

from gatehouse.components.artifacts.canonical import digest_of
from gatehouse.components.artifacts.code import closure_of, text_digests
from gatehouse.components.artifacts.erasure import remove_blob
from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.store import ArtifactStore

_FOLDER = "reports"


def page_key(reference: Reference, page: str) -> str:
    """The key of a page in the store: it changes with the artifact, and with the code that draws it.

    Args:
        reference: The artifact.
        page: The function that draws it, as `package.module:name`.
    """
    module = page.partition(":")[0]
    shows = closure_of(module, lambda name: ".artifacts." in name)
    return f"{_FOLDER}/{reference}/{digest_of(text_digests(shows))[:16]}.html"


def draw(store: ArtifactStore, reference: Reference, page: str) -> str:
    """Draw the page of an artifact and keep it; gives its key. One that is there already is not drawn again.

    Args:
        store: Holds the artifact.
        reference: The artifact.
        page: The function that draws it, as `package.module:name`.

    Raises:
        ErasedArtifactError: if the artifact was erased.
    """
    key = page_key(reference, page)
    if store.objects.stat(key) is None:
        module, _, name = page.partition(":")
        html: str = getattr(importlib.import_module(module), name)(store, str(reference))
        store.objects.put_bytes(key, html.encode())
        if store.erasures.of(reference) is not None:  # while the page was drawn
            remove_blob(store.objects, key)
            store.erasures.require_kept(reference)
    return key


def pages_of(store: ArtifactStore, reference: Reference | str) -> Iterator[str]:
    """The keys of all pages that were drawn of an artifact, in older styles too."""
    return store.objects.list(f"{_FOLDER}/{reference}")
