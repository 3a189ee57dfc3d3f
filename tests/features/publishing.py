"""Publishes feature definitions that a test has as texts, as a project publishes those of its folder."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from gatehouse.features.definitions.repository import published_files, read_repository
from gatehouse.store.store import ArtifactStore


def publish_definitions(store: ArtifactStore, name: str, files: Mapping[str, str]) -> str:
    """The reference of the definitions in `files`, which are texts by path."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / path).write_text(text)
        return str(store.publish("config", name, published_files(read_repository(Path(folder)))))
