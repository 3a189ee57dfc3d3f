"""A command on several nodes: real wrappers that meet, as the pods of a job run them."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gatehouse.errors import MissingArtifactError
from gatehouse.launchers.checkpoint_copies import CheckpointCopies
from gatehouse.launchers.launcher import CHECKPOINT_NAME, CHECKPOINT_STORE, FAILURE, JOB, RESULT
from gatehouse.store.objects.local import LocalObjects
from tests.ports import free_port

RESUMES = """
import json, os, pathlib, signal, sys, time
shared, saved, rank = pathlib.Path(sys.argv[1]), pathlib.Path(os.environ["GATEHOUSE_CHECKPOINTS"]), os.environ["RANK"]
if (shared / "killed").exists():
    (shared / f"begins-{rank}").write_text(json.dumps({path.name: path.read_text() for path in saved.iterdir()}))
    (pathlib.Path(os.environ["GATEHOUSE_OUTPUT"]) / "weights").write_text("") if rank == "0" else None
    sys.exit()
(saved / ("epoch" if rank == "0" else "of-rank-1")).write_text("1")
(shared / f"wrote-{rank}").touch()
while rank == "1" or not (shared / "wrote-1").exists() or not list(shared.glob("store/scratch/checkpoints/*/files-*")):
    time.sleep(0.05)
(saved / "epoch").write_text("2")  # No copy is made of it.
(shared / "killed").touch()
os.kill(os.getpid(), signal.SIGKILL)
"""
SHARDS = """
import os, pathlib
(pathlib.Path(os.environ["GATEHOUSE_OUTPUT"]) / f"shard-{os.environ['RANK']}").write_text("")
"""


def _run_two(folder: Path, script: str, ended: Callable[[list[subprocess.Popen[bytes]]], bool]) -> list[Path]:
    """Run a script on two nodes until they have `ended`; returns the directories of both."""
    port, nodes, wrappers = free_port(), [folder / "a", folder / "b"], []
    environment = {CHECKPOINT_STORE: str(folder / "store"), CHECKPOINT_NAME: "job"}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path), "GLOO_SOCKET_IFNAME": "lo"}
    options = ["--nodes=2", f"--rendezvous=localhost:{port}", "--run-id=launch", "--max-restarts=1"]
    job = {"command": ["python", "-c", script, str(folder)], "environment": {}, "parameters": {}, "output": True}
    try:
        for directory in nodes:
            directory.mkdir()
            (directory / JOB).write_text(json.dumps(job | {"store": ""}))
            command = ["gatehouse.launchers.wrapper", "gatehouse.launchers.command", "1", str(directory), *options]
            wrappers.append(subprocess.Popen([sys.executable, "-m", *command], env=os.environ | environment))
        deadline = time.monotonic() + 120
        while not ended(wrappers):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        for wrapper in wrappers:
            wrapper.kill()
            wrapper.wait()
    return nodes


def test_all_ranks_begin_again_with_the_files_that_rank_0_left_in_the_store(tmp_path: Path) -> None:
    _run_two(tmp_path, RESUMES, lambda wrappers: all(wrapper.poll() == 0 for wrapper in wrappers))
    begins = [json.loads((tmp_path / f"begins-{rank}").read_text()) for rank in (0, 1)]
    assert begins == [{"epoch": "1"}, {"epoch": "1"}]


def test_files_of_an_output_that_would_be_lost_with_their_node_are_an_error(tmp_path: Path) -> None:
    nodes = _run_two(tmp_path, SHARDS, lambda wrappers: any(wrapper.poll() is not None for wrapper in wrappers))
    (failed,) = [node for node in nodes if (node / FAILURE).exists()]
    assert "rank 1" in json.loads((failed / FAILURE).read_text())["message"]
    assert not any((node / RESULT).exists() for node in nodes)


def _copies(tmp_path: Path, node: str, **files: str) -> CheckpointCopies:
    (tmp_path / node).mkdir()
    for name, text in files.items():
        (tmp_path / node / name).write_text(text)
    return CheckpointCopies(str(tmp_path / "store"), "job", tmp_path / node)


def test_a_node_that_others_have_passed_publishes_nothing_older(tmp_path: Path) -> None:
    first, second = _copies(tmp_path, "a", epoch="1"), _copies(tmp_path, "b", epoch="0", other="")
    first.look(0.0)
    second.restore(exactly=True)
    assert [(path.name, path.read_text()) for path in (tmp_path / "b").iterdir()] == [("epoch", "1")]
    (tmp_path / "b" / "epoch").write_text("2")
    second.look(0.0)
    for now, text in enumerate("12", 1):
        (tmp_path / "a" / "late").write_text(text)
        first.look(now * 10.0, ended=True)  # It has not noticed yet that the others go on without it.
    third = _copies(tmp_path, "c")
    third.restore()
    assert [(path.name, path.read_text()) for path in (tmp_path / "c").iterdir()] == [("epoch", "2")]


def test_a_list_that_is_replaced_while_it_is_read_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = _copies(tmp_path, "a", epoch="1", fixed="0"), _copies(tmp_path, "b")
    first.look(0.0)
    (tmp_path / "a" / "epoch").write_text("2")
    get_bytes, looks = LocalObjects.get_bytes, iter([False, True])

    def get_after_a_look(objects: LocalObjects, key: str) -> bytes:
        if next(looks, False):
            first.look(10.0)
        return get_bytes(objects, key)

    monkeypatch.setattr(LocalObjects, "get_bytes", get_after_a_look)
    second.restore()
    assert sorted((path.name, path.read_text()) for path in (tmp_path / "b").iterdir()) == [
        ("epoch", "2"),
        ("fixed", "0"),
    ]
    for path in (tmp_path / "store").rglob("*"):
        if path.is_file() and "files-" not in path.name:
            path.unlink()
    with pytest.raises(MissingArtifactError):  # Not for ever.
        _copies(tmp_path, "c").restore()
