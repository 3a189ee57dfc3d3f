"""Pages of artifacts: drawn from an artifact, stored under its identity, and drawn again when code or template changes.

A page is for people. It is in no manifest, so a change of its looks causes no new computation.
"""

import importlib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

from gatehouse.store.canonical import digest_of
from gatehouse.store.code import closure_of, text_digests
from gatehouse.store.erasure import erasure_of, remove_all, require_kept
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

_FOLDER = "reports"


def page_key(reference: Reference, page: str) -> str:
    """The key of a page in the store: it depends on the artifact, and on the code and the templates that draw it."""
    shows = closure_of(page.partition(":")[0], lambda name: name.startswith("gatehouse.store."))
    drawn_by = digest_of({"code": text_digests(shows), "templates": _templates_digest()})
    return f"{_FOLDER}/{reference}/{drawn_by[:16]}.html"


@cache
def _templates_digest() -> str:
    """The digest of all templates and style sheets."""
    folder = files("gatehouse.reports") / "templates"
    return digest_of({entry.name: entry.read_text(encoding="utf-8") for entry in folder.iterdir() if entry.is_file()})


def draw(store: ArtifactStore, reference: Reference, page: str) -> str:
    """Draw an artifact's page by the function `module:name`, unless it is stored already; returns its key."""
    key = page_key(reference, page)
    if store.objects.stat(key) is None:
        module, _, name = page.partition(":")
        html: str = getattr(importlib.import_module(module), name)(store, str(reference))
        store.objects.put_bytes(key, html.encode())
        if erasure_of(store.objects, reference) is not None:  # while the page was drawn
            remove_all(store.objects, key)
            require_kept(store.objects, reference)
    return key


def pages_of(store: ArtifactStore, reference: Reference | str) -> Iterator[str]:
    """The keys of all pages of an artifact, including those by older code."""
    return store.objects.list(f"{_FOLDER}/{reference}")
