"""The local launcher: real torchrun jobs that fail, hang, are killed, or only look as if they had succeeded."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gatehouse.launchers import local
from gatehouse.launchers.launcher import EVICTED, LOG, EvictedError, TrainingFailedError, TrainingJob
from gatehouse.launchers.spec import LocalLaunch
from gatehouse.runtime.process import descendants, start_time
from gatehouse.store.store import ArtifactStore
from gatehouse.training.data.job import prepare_job
from gatehouse.training.stage import PROGRAM
from tests.training.specs import network
from tests.training.synthetic import fitted_data

SPEC = network(hidden=(8,), epochs=3, batch_size=128, learning_rate=0.01, processes=1)
OWNER = """
import sys
from pathlib import Path
from gatehouse.store.stage import _end_on_sigterm
from gatehouse.launchers.launcher import TrainingJob
from gatehouse.launchers.local import LocalLauncher
_end_on_sigterm()
LocalLauncher().run(TrainingJob(Path(sys.argv[1]), "tests.training.stand_in", 1, 5))
"""


@pytest.fixture
def job(store: ArtifactStore, tmp_path: Path) -> TrainingJob:
    directory = tmp_path / "job"
    directory.mkdir()
    prepare_job(store, *fitted_data(store), SPEC, directory)
    return TrainingJob(directory, PROGRAM, SPEC.parallelism.processes, 5)


def _log(job: TrainingJob) -> str:
    path = job.directory / LOG
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_outlives_the_owner_of_the_job(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "action").write_text(json.dumps({"what": "train", "steps": 100_000}))
    (tmp_path / "job.json").write_text("{}")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], env=environment)
    deadline = time.monotonic() + 600
    while not (tmp_path / "world-1-0-0").exists():
        assert time.monotonic() < deadline and owner.poll() is None
        time.sleep(0.05)
    below = descendants(owner.pid)
    assert len(below) >= 3, "the wrapper, torchrun and a worker"
    owner.send_signal(number)
    owner.wait(timeout=60)
    deadline = time.monotonic() + 60
    while any(start_time(pid) for pid in below):
        assert time.monotonic() < deadline, "processes are left behind"
        time.sleep(0.05)


STAND_IN = """
import sys
from pathlib import Path
attempts = Path(sys.argv[3]) / "attempts"
attempts.write_text(attempts.read_text() + "." if attempts.exists() else ".")
print("attempt", len(attempts.read_text()), flush=True)
sys.exit(143)
"""


def test_a_preempted_job_goes_on_and_says_so_when_it_may_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stand_in_wrapper.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(local, "_WRAPPER", "stand_in_wrapper")
    job = TrainingJob(tmp_path, PROGRAM, 1, 5)
    with pytest.raises(EvictedError) as caught:
        local.LocalLauncher(LocalLaunch(max_restarts=2)).run(job)
    assert str(caught.value).splitlines()[0] == EVICTED
    assert "3 times" in str(caught.value)
    assert _log(job).split() == ["attempt", "1", "attempt", "2", "attempt", "3"]


def test_lines_are_taken_from_a_job_also_where_its_log_cannot_be_written(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    stream = io.BytesIO(b"one\ntwo\n")
    local._copy_lines(stream, Path("/dev/full"))
    assert stream.read() == b""
    said = [record.getMessage() for record in caplog.records]
    assert said[1:] == ["one", "two"] and "No space left on device" in said[0]


def test_exit_code_0_without_weights_is_no_success(job: TrainingJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_WRAPPER", "this")
    (job.directory / "result.json").write_text(json.dumps({"weights_sha256": "of an attempt before"}))
    with pytest.raises(TrainingFailedError, match="reports success, but there is no result"):
        local.LocalLauncher().run(job)


def test_weights_that_the_result_does_not_name_are_no_success(job: TrainingJob) -> None:
    (job.directory / "result.json").write_text(json.dumps({"weights_sha256": "0" * 64}))
    (job.directory / "weights").write_bytes(b"other bytes")
    assert "the weights have SHA-256" in local._problem(job, 0)


def test_an_exit_code_is_no_success_whatever_lies_there(job: TrainingJob) -> None:
    assert "exit code 3" in local._problem(job, 3)
