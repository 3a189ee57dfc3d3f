"""Publishes feature definitions that a test has as texts, as a project publishes those of its folder."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from gatehouse.features.definitions.published import published_files
from gatehouse.features.definitions.repository import read_repository
from gatehouse.store.store import ArtifactStore


def write_files(folder: Path, files: Mapping[str, str]) -> Path:
    """Write texts, by path, into a folder."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def publish_definitions(store: ArtifactStore, name: str, files: Mapping[str, str]) -> str:
    """The reference of the definitions in `files`, which are texts by path."""
    with tempfile.TemporaryDirectory() as folder:
        return str(store.publish("config", name, published_files(read_repository(write_files(Path(folder), files)))))
