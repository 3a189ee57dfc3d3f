"""Lineage from manifests, the code and machine of a run, its cost, and the memory of a process."""

import subprocess
import sys
from pathlib import Path

import pytest

from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.provenance import (
    COMMIT,
    Prices,
    capture_environment,
    code_commit,
    cost_here,
    lineage_of,
    lineage_tags,
    revision,
)

PRICES = Prices(per_hour={"default": 0.5, "gpu": 10.0})


@pytest.fixture(autouse=True)
def _fresh() -> None:
    code_commit.cache_clear()


def output_of(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_lineage_has_every_ancestor_once_and_not_the_artifact_itself(store: ArtifactStore) -> None:
    raw = store.publish("datasets", "raw", {"a": "1"})
    left = store.publish("features", "left", {"a": "2"}, derived_from={"raw": raw})
    right = store.publish("features", "right", {"a": "3"}, derived_from={"raw": raw})
    top = store.publish("models", "m", {"a": "4"}, derived_from={"left": left, "right": right})
    assert lineage_of(store, top) == tuple(sorted(map(str, (raw, left, right))))
    assert lineage_of(store, raw) == ()
    other = store.publish("datasets", "raw", {"a": "5"})
    tags = lineage_tags((str(raw), str(other), str(left)))
    assert tags == {
        "gatehouse.lineage.datasets.raw": f"{raw} {other}",
        "gatehouse.lineage.features.left": str(left),
    }


def test_cost_is_the_price_per_hour_times_machines_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert PRICES.cost(1800, "gpu", machines=4) == pytest.approx(20.0)
    assert PRICES.cost(3600, "unheard of") == pytest.approx(0.5)
    assert Prices(per_hour={"gpu": 10.0}).cost(3600, "cpu") is None
    monkeypatch.delenv("GATEHOUSE_PRICES", raising=False)
    assert cost_here(3600) == {}
    monkeypatch.setenv("GATEHOUSE_PRICES", PRICES.model_dump_json())
    monkeypatch.setenv("GATEHOUSE_MACHINE", "gpu")
    assert cost_here(360) == {"cost": pytest.approx(1.0)}


def test_an_environment_has_commit_image_machine_versions_hardware_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMMIT, "abc123+dirty")
    monkeypatch.setenv("GATEHOUSE_IMAGE", "registry/gatehouse@sha256:" + "0" * 64)
    monkeypatch.setenv("GATEHOUSE_MACHINE", "n2-standard-8")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    captured = capture_environment()
    assert (captured.commit, captured.dirty) == ("abc123", True) and "torch" in captured.distributions
    assert "cores" in captured.hardware and "GiB" in captured.hardware
    tags = captured.tags()
    assert (tags["gatehouse.commit"], tags["gatehouse.dirty"]) == ("abc123+dirty", "true")
    assert (tags["mlflow.source.git.commit"], tags["gatehouse.threads.OMP_NUM_THREADS"]) == ("abc123", "3")
    assert tags["gatehouse.image"].endswith("0" * 64) and tags["gatehouse.machine"] == "n2-standard-8"


def test_without_git_the_commit_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(COMMIT, raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    assert capture_environment().tags()["gatehouse.commit"] == "unknown"


def test_capturing_imports_no_large_library() -> None:
    program = (
        "import sys; from gatehouse.tracking.provenance import capture_environment as c; c();"
        "print(sorted({'torch', 'mlflow', 'numpy', 'feast'} & set(sys.modules)))"
    )
    assert output_of(program) == "[]\n"


def test_a_folder_has_its_release_or_its_commit(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        return subprocess.check_output(["git", "-C", str(tmp_path), *author, *arguments], text=True).strip()

    assert revision(tmp_path / "gone") == ""
    git("init", "-q")
    git("commit", "-qm", "First", "--allow-empty")
    assert revision(tmp_path) == git("rev-parse", "--short", "HEAD")
    git("tag", "v1.2")
    assert revision(tmp_path) == "v1.2"


def test_the_peak_of_a_process_stays_when_its_memory_was_freed() -> None:
    program = (
        "from gatehouse.metrics.performance import peak_memory_mb as peak\n"
        "before = peak(); data = b'x' * 200_000_000; del data; print(peak() - before)"
    )
    assert 199 < float(output_of(program)) < 203
