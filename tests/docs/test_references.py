"""The table of who reads each file of an artifact, beside the artifacts of a run and the sources that it names."""

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from gatehouse.kfp.local_run import LocalRun
from gatehouse.store.code import imports_of, source_of
from gatehouse.store.stage import CONTENTS, declared_stages
from gatehouse.store.store import ArtifactStore
from tests.source_tree import ROOT

PAGE = ROOT / "docs" / "references.md"


def _rows(page: str) -> Iterator[tuple[str, str, list[str]]]:
    """Kind, file and readers of each row."""
    for kind, file, readers in re.findall(r"^\| `([\w-]+)` \| `([^`]+)` \| (.*)$", page, re.MULTILINE):
        yield kind, file, re.findall(r"\(\.\./([^)]+)\.py\)", readers)


def test_every_file_of_a_run_has_a_row_and_every_row_a_file(first: tuple[ArtifactStore, LocalRun]) -> None:
    """But for kinds that a stage has shown by what they contain: their page reads any file."""
    shown = {
        kind for each in declared_stages().values() for kind, page in each.declared.pages.items() if page == CONTENTS
    }
    root = Path(first[0].address)
    files = {
        (path.relative_to(root).parts[0], entry["path"])
        for path in root.rglob("manifest.json")
        for entry in json.loads(path.read_text())["files"]
        if path.relative_to(root).parts[0] not in shown
    }
    training, others = PAGE.read_text().split("And these are the artifacts of other pipelines")
    rows = [(kind, file) for kind, file, _ in _rows(training)]
    stated = {each: [row for row in rows if row[0] == each[0] and fnmatch(each[1], row[1])] for each in files}
    assert [each for each, found in stated.items() if not found] == []
    assert set(rows) == {row for found in stated.values() for row in found}
    assert not files & {(kind, file) for kind, file, _ in _rows(others)}


def test_readers_know_the_files_that_they_are_said_to_read() -> None:
    for kind, file, readers in _rows(PAGE.read_text()):
        assert readers, f"nobody reads {file} of {kind}: it has no place in the artifact"
        stem = file.partition(".")[0]
        for reader in readers:
            module = reader.replace("/", ".")
            texts = [path.read_text() for each in {module, *imports_of(module)} if (path := source_of(each))]
            assert stem.startswith(("*", "part-", "known-")) or any(stem in text for text in texts), f"{reader}: {file}"
