"""Where the file of an artifact's page lies, for a store that is on no disk of this machine."""

from pathlib import Path

import pytest

from gatehouse.reports.rendering import rendered
from gatehouse.store.store import ArtifactStore
from tests.store.memory_objects import Memory, MemoryObjects


def test_the_page_of_a_far_store_is_copied_whole_into_a_folder_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEHOUSE_CACHE", str(tmp_path))
    store = ArtifactStore(MemoryObjects(Memory()))
    drawn = store.publish("profiles", "x", {"counts.json": '{"2013-01": 3}'})
    page = rendered(store, drawn)
    assert page.is_relative_to(tmp_path)
    assert page.stat().st_mode & 0o777 == 0o444  # Installed when it was finished.
    assert "2013-01" in page.read_text()
    assert rendered(store, drawn) == page
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [page]
