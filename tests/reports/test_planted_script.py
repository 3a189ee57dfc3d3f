"""A script in the names and values of data stays text on every page that a run draws, in a real browser."""

import importlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gatehouse.kfp.local_run import LocalRun
from gatehouse.store.canonical import canonical_json
from gatehouse.store.manifest import Manifest
from gatehouse.store.reference import Reference
from gatehouse.store.stage import declared_stages
from gatehouse.store.store import ArtifactStore
from tests.reports.browser import Browser

PLANTED = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
NAMES = (
    "carrier", "dest", "origin", "month", "distance", "temp",  # columns, of which features are made
    "UA", "US", "VX", "WN", "EWR", "JFK", "LGA",  # categories
    "flights", "weather", "planes",  # tables
    "learning_rate", "dropout",  # settings
)  # fmt: skip
_QUOTED = re.compile(rb'"(%s)((?: [^"]*|[_=.][^"]*)?)"' % "|".join(NAMES).encode())


def _planted(text: bytes) -> bytes:
    """JSON in which every name and value that begins with one of `NAMES` begins with a script instead."""
    return _QUOTED.sub(lambda match: b'"' + json.dumps(PLANTED)[1:-1].encode() + match[1] + match[2] + b'"', text)


def _drawn(store: ArtifactStore) -> dict[str, tuple[str, Reference]]:
    declared = {kind: page for stage in declared_stages().values() for kind, page in stage.declared.pages.items()}
    return {
        reference.kind: (declared[reference.kind], reference)
        for reference in store.references()
        if reference.kind in declared
    }


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    read, manifest = ArtifactStore.read_bytes, ArtifactStore.manifest

    def planted_bytes(store: ArtifactStore, reference: Any, file: str) -> bytes:
        data = read(store, reference, file)
        return _planted(data) if file.endswith(".json") else data

    def planted_manifest(store: ArtifactStore, reference: Any) -> Manifest:
        original = manifest(store, reference)
        body = json.loads(original.to_json())
        for part in ("details", "configuration"):
            body[part] = json.loads(_planted(canonical_json(body[part]).encode()))
        return Manifest.from_json(body)

    monkeypatch.setattr(ArtifactStore, "read_bytes", planted_bytes)
    monkeypatch.setattr(ArtifactStore, "manifest", planted_manifest)


@pytest.mark.usefixtures("planted")
def test_no_page_of_a_run_runs_what_data_says(
    first: tuple[ArtifactStore, LocalRun], browser: Browser, tmp_path: Path
) -> None:
    kinds = _drawn(first[0])
    assert len(kinds) >= 6
    silent = set()
    for kind, (name, reference) in kinds.items():
        module, _, function = name.partition(":")
        draw: Callable[[ArtifactStore, str], str] = getattr(importlib.import_module(module), function)
        html = draw(first[0], str(reference))
        # Without the page's own policy, so that nothing but escaping keeps the script from running.
        path = tmp_path / f"{kind}.html"
        path.write_text(re.sub(r"<meta http-equiv=\"Content-Security-Policy\"[^>]*>", "", html))
        page = browser.page().open(path)
        assert "owned" not in page.js("document.title"), kind
        assert page.js("document.querySelectorAll('img').length") == 0, kind
        assert page.requests == [path.as_uri()], kind
        if PLANTED not in page.js("document.body.textContent"):
            silent.add(kind)
    # These show the names of tables, of checks, of parts and of parameters alone, which no script can be.
    assert silent == {"experiments", "snapshots", "split-checks"}, "these pages show nothing that was planted"
