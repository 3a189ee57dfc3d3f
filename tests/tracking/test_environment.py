"""What is captured of code and machine."""

import subprocess
import sys
from pathlib import Path

import pytest

from gatehouse.tracking.provenance import COMMIT, capture_environment, code_commit, revision


@pytest.fixture(autouse=True)
def _fresh() -> None:
    code_commit.cache_clear()


def test_an_image_carries_its_commit_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMMIT, "abc123+dirty")
    captured = capture_environment()
    assert (captured.commit, captured.dirty) == ("abc123", True)
    tags = captured.tags()
    assert (tags["gatehouse.commit"], tags["gatehouse.dirty"]) == ("abc123+dirty", "true")
    assert tags["mlflow.source.git.commit"] == "abc123"


def test_the_image_is_named_by_its_digest_and_the_machine_by_its_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEHOUSE_IMAGE", "registry/gatehouse@sha256:" + "0" * 64)
    monkeypatch.setenv("GATEHOUSE_MACHINE", "n2-standard-8")
    tags = capture_environment().tags()
    assert tags["gatehouse.image"].endswith("0" * 64) and tags["gatehouse.machine"] == "n2-standard-8"
    monkeypatch.delenv("GATEHOUSE_IMAGE")
    assert "gatehouse.image" not in capture_environment().tags()


def test_without_git_the_commit_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(COMMIT, raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    assert capture_environment().tags()["gatehouse.commit"] == "unknown"


def test_versions_hardware_and_threads_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    captured = capture_environment(("pydantic", "no-such-distribution"))
    assert list(captured.distributions) == ["pydantic"]
    assert "cores" in captured.hardware and "GiB" in captured.hardware
    assert captured.threads["OMP_NUM_THREADS"] == "3"


def test_capturing_imports_nothing_heavy() -> None:
    code = (
        "import sys; from gatehouse.tracking.provenance import capture_environment as c; c();"
        "print(sorted({'torch', 'mlflow', 'numpy', 'feast'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_folder_is_named_by_its_release_or_its_commit(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        return subprocess.check_output(["git", "-C", str(tmp_path), *author, *arguments], text=True).strip()

    assert revision(tmp_path / "gone") == ""
    git("init", "-q")
    (tmp_path / "project.yaml").write_text("name: flights")
    git("add", ".")
    git("commit", "-qm", "First")
    assert revision(tmp_path) == git("rev-parse", "--short", "HEAD")
    git("tag", "v1.2")
    (tmp_path / "project.yaml").write_text("name: other")
    assert revision(tmp_path) == "v1.2-dirty"
