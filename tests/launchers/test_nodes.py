"""A command on several nodes: real wrappers that meet, as the pods of a job run them."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gatehouse.launchers.command import CheckpointCopies
from gatehouse.launchers.launcher import CHECKPOINT_NAME, CHECKPOINT_STORE, COMMAND, FAILURE, JOB, RESULT
from gatehouse.store.objects.local import LocalObjects
from tests.ports import free_port

RESUMES = """
import json, os, pathlib, signal, sys, time
shared, saved, rank = pathlib.Path(sys.argv[1]), pathlib.Path(os.environ["GATEHOUSE_CHECKPOINTS"]), os.environ["RANK"]
if (shared / "killed").exists():
    (shared / f"begins-{rank}").write_text(json.dumps({path.name: path.read_text() for path in saved.iterdir()}))
    (pathlib.Path(os.environ["GATEHOUSE_OUTPUT"]) / "weights").write_text("") if rank == "0" else None
    sys.exit()
def copied():
    try:
        return any("of-rank-1" in path.read_text() for path in shared.glob("store/scratch/checkpoints/*/files-*"))
    except FileNotFoundError:  # A newer list has replaced it.
        return False
(saved / ("epoch" if rank == "0" else "of-rank-1")).write_text("1")
while rank == "1" or not copied():
    time.sleep(0.05)
(saved / "epoch").write_text("2")  # No copy is made of it.
(shared / "killed").touch()
os.kill(os.getpid(), signal.SIGKILL)
"""
SHARDS = "import os; open(os.environ['GATEHOUSE_OUTPUT'] + '/shard-' + os.environ['RANK'], 'w').close()"


def _run(folder: Path, script: str) -> None:
    """Run a script on two nodes, `a` and `b`, until both have ended well or one has failed."""
    job = {"command": ["python", "-c", script, str(folder)], "environment": {}, "parameters": {}, "output": True}
    environment = os.environ | {CHECKPOINT_STORE: str(folder / "store"), CHECKPOINT_NAME: "job"}
    options = ["--nodes=2", f"--rendezvous=localhost:{free_port()}", "--run-id=launch", "--max-restarts=1"]
    wrappers, deadline = [], time.monotonic() + 120
    for node in (folder / "a", folder / "b"):
        node.mkdir()
        (node / JOB).write_text(json.dumps(job))
        command = [sys.executable, "-m", "gatehouse.launchers.wrapper", COMMAND, "1", str(node), *options]
        wrappers.append(subprocess.Popen(command, env=environment | {"GLOO_SOCKET_IFNAME": "lo"}))
    while None in (codes := [wrapper.poll() for wrapper in wrappers]) and not any(codes):
        time.sleep(0.1)
        assert time.monotonic() < deadline
    for wrapper in wrappers:
        wrapper.kill()
        wrapper.wait()


def test_all_ranks_begin_again_with_the_files_that_both_nodes_left_in_the_store(tmp_path: Path) -> None:
    _run(tmp_path, RESUMES)
    kept = {"epoch": "1", "of-rank-1": "1"}
    assert [json.loads((tmp_path / f"begins-{rank}").read_text()) for rank in "01"] == [kept] * 2


def test_files_of_an_output_that_would_be_lost_with_their_node_are_an_error(tmp_path: Path) -> None:
    _run(tmp_path, SHARDS)
    (failure,) = tmp_path.glob(f"*/{FAILURE}")
    assert "rank 1" in json.loads(failure.read_text())["message"] and not list(tmp_path.glob(f"*/{RESULT}"))


def _copies(folder: Path, **files: str) -> CheckpointCopies:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    return CheckpointCopies(str(folder.parent / "store"), "job", folder)


def _files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_node_that_others_have_passed_publishes_nothing_older(tmp_path: Path) -> None:
    a, b, c = (tmp_path / name for name in "abc")
    first, second = _copies(a, epoch="1"), _copies(b, epoch="0", other="")
    first.begin()
    first.look(0.0)
    second.restore(exactly=True)
    second.begin()
    assert _files(b) == {"epoch": "1"}
    (b / "epoch").write_text("2")
    second.look(0.0)
    (a / "late").touch()
    first.close(0.0)  # It has not noticed yet that the others go on without it.
    _copies(c).restore()
    assert _files(c) == {"epoch": "2"}


def test_a_list_that_is_replaced_while_it_is_read_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    first, second = _copies(a, epoch="1", fixed="0"), _copies(b)
    get_bytes, looks = LocalObjects.get_bytes, iter([0, 10])
    first.begin()
    first.look(0.0)
    (a / "epoch").write_text("2")

    def get_after_a_look(objects: LocalObjects, key: str) -> bytes:
        first.look(next(looks, 0.0))
        return get_bytes(objects, key)

    # The real store, but another node writes to it between two reads, which no timing would force.
    monkeypatch.setattr(LocalObjects, "get_bytes", get_after_a_look)
    second.restore()
    assert _files(b) == {"epoch": "2", "fixed": "0"}
