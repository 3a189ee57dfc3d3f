"""A command on several nodes: real wrappers that meet, as the pods of a job run them."""

import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from torch.distributed import PrefixStore, TCPStore
from torch.distributed.elastic.rendezvous.api import RendezvousTimeoutError

from gatehouse.errors import StoreError
from gatehouse.launchers.command import CheckpointCopies, Nodes
from gatehouse.launchers.launcher import (
    CHECKPOINT_NAME,
    CHECKPOINT_STORE,
    FAILURE,
    JOB,
    RESULT,
    noted_attempts,
)
from gatehouse.launchers.wrapper import COMMAND, await_address
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
        lists = [path.read_text() for path in shared.glob("store/scratch/checkpoints/*/files-*")]
        return any("of-rank-1" in text and "epoch" in text for text in lists)
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


ELASTIC = """
import json, os, pathlib, sys, time
shared, saved = pathlib.Path(sys.argv[1]), pathlib.Path(os.environ["GATEHOUSE_CHECKPOINTS"])
rank, world, start = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["MASTER_PORT"]
whole = sorted(saved.glob("step-*/metadata"))
begun = int(whole[-1].parent.name[5:]) if whole else 0
shards = json.loads(whole[-1].read_text()) if whole else []
assert all((whole[-1].parent / name).exists() for name in shards), f"{whole[-1]} names what is not there"
(shared / f"begins-{world}-{rank}").write_text(str(begun))
for step in range(begun + 1, begun + 1000):
    folder = saved / f"step-{step:06d}"
    folder.mkdir(exist_ok=True)
    (folder / f"shard-{rank}").touch()
    (shared / f"{start}-{step}-{rank}").touch()
    while not all((shared / f"{start}-{step}-{peer}").exists() for peer in range(world)):
        if (shared / "lost").exists() and world == 3:
            sys.exit("A peer has closed its connection.")
        time.sleep(0.02)
    if rank == 0:
        (folder / "metadata").write_text(json.dumps([f"shard-{peer}" for peer in range(world)]))
    if world == 2 and step > begun + 2:
        break
    time.sleep(0.1)
(pathlib.Path(os.environ["GATEHOUSE_OUTPUT"]) / "steps").write_text(str(step)) if rank == 0 else None
"""


def _start(folder: Path, script: str, nodes: str, *more: str) -> list["subprocess.Popen[bytes]"]:
    job = {"command": ["python", "-c", script, str(folder)], "environment": {}, "parameters": {}, "output": True}
    environment = os.environ | {CHECKPOINT_STORE: str(folder / "store"), CHECKPOINT_NAME: "job"}
    port = free_port()
    options = [f"--nodes={len(nodes)}", f"--rendezvous=localhost:{port}", "--max-restarts=1", *more]
    wrappers = []
    for node in map(folder.joinpath, nodes):
        node.mkdir()
        (node / JOB).write_text(json.dumps(job))
        command = [sys.executable, "-m", "gatehouse.launchers.wrapper", COMMAND, "1", str(node), *options]
        wrappers.append(subprocess.Popen(command, env=environment | {"GLOO_SOCKET_IFNAME": "lo"}))
        # All are this machine, and the machines meet on the first one that listens: let it be the first node.
        _wait(lambda: _listens(port))
    return wrappers


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("localhost", port)):
        return True
    return False


def _run(folder: Path, script: str) -> None:
    """Run a script on two nodes, `a` and `b`, until both have ended well or one has failed."""
    wrappers = _start(folder, script, "ab")
    _wait(lambda: None not in (codes := [wrapper.poll() for wrapper in wrappers]) or any(codes))
    for wrapper in wrappers:
        wrapper.kill()
        wrapper.wait()


def _wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 240
    while not condition():
        time.sleep(0.1)
        assert time.monotonic() < deadline


def test_all_ranks_begin_again_with_the_files_that_both_nodes_left_in_the_store(tmp_path: Path) -> None:
    _run(tmp_path, RESUMES)
    kept = {"epoch": "1", "of-rank-1": "1"}
    assert [json.loads((tmp_path / f"begins-{rank}").read_text()) for rank in "01"] == [kept] * 2


def test_a_pod_ends_with_its_process_and_not_with_its_grace(tmp_path: Path) -> None:
    begins = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1], os.environ['RANK']).touch(); time.sleep(300)"
    wrappers = _start(tmp_path, begins, "ab", "--grace-seconds=120")
    try:
        _wait(lambda: all((tmp_path / rank).exists() for rank in "01"))
        wrappers[1].terminate()  # Its torchrun waits for the other node, which goes on.
        assert wrappers[1].wait(40) == 143
    finally:
        for wrapper in wrappers:
            wrapper.kill()


def test_a_script_goes_on_from_its_shards_with_the_nodes_that_are_left(tmp_path: Path) -> None:
    wrappers = _start(tmp_path, ELASTIC, "abc", "--min-nodes=2")
    try:
        lists = tmp_path / "store" / "scratch" / "checkpoints" / "job"
        _wait((tmp_path / "begins-3-0").exists)
        _wait(lambda: any("metadata" in path.read_text() for path in lists.glob("files-*")))
        wrappers[2].terminate()  # Its pod is deleted, and none takes its place.
        assert wrappers[2].wait(60) == 143
        (tmp_path / "lost").touch()
        assert [wrapper.wait(240) for wrapper in wrappers[:2]] == [0, 0]
    finally:
        for wrapper in wrappers:
            wrapper.kill()
    begun = {(tmp_path / f"begins-2-{rank}").read_text() for rank in (0, 1)}
    assert len(begun) == 1 and begun != {"0"}
    events = [line["event"] for line in noted_attempts(tmp_path / "a")]
    assert events[-1] == "2 workers start on 2 nodes" and "3 workers start on 3 nodes" in events
    assert len(list(tmp_path.glob("*/result.json"))) == 1


def test_a_list_holds_no_file_of_rank_0_without_what_the_others_wrote_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    meeting = TCPStore("localhost", port, is_master=True, wait_for_workers=False)
    alone = _copies(tmp_path / "a", old="of the start before")
    alone.begin()
    alone.look(0.0)
    first, second = alone, _copies(tmp_path / "b")
    for rank, copies in enumerate((first, second)):
        place = {"MASTER_ADDR": "a", "MASTER_PORT": "1", "GROUP_RANK": f"{rank}", "GROUP_WORLD_SIZE": "2"}
        for variable, value in place.items():
            monkeypatch.setenv(variable, value)
        copies.restore(exactly=True)
        copies.begin(Nodes(f"localhost:{port}"))
    for name in ("a/shard-0", "b/shard-1", "a/metadata"):
        (tmp_path / name).touch()
    first.look(10.0)
    assert first._newest()[1].keys() == {"old"}, "the other node has not answered yet"
    (tmp_path / "b" / "old").unlink()
    second.look(10.0)
    first.look(10.1)
    assert first._newest()[1].keys() == {"shard-0", "shard-1", "metadata"}
    del meeting


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


def test_a_node_that_others_have_passed_publishes_nothing_older(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    (a / "epoch").unlink()
    with monkeypatch.context() as patch:  # It writes between the look at the newest list and the list of the second.
        (b / "epoch").write_text("3")
        put_bytes = LocalObjects.put_bytes
        third = _copies(tmp_path / "d")
        third.begin()

        def put_after_another(objects: LocalObjects, key: str, data: bytes) -> bool:
            patch.undo()
            third.look(0.0)
            return put_bytes(objects, key, data)

        (tmp_path / "d" / "epoch").write_text("2")
        (tmp_path / "d" / "other").write_text("2")
        patch.setattr(LocalObjects, "put_bytes", put_after_another)
        second.look(10.0)
    again = _copies(tmp_path / "e")
    again.restore()
    assert _files(tmp_path / "e") == {"epoch": "2", "other": "2"}, "a file of the newest list is gone"


def test_a_restore_that_is_killed_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = _copies(tmp_path / "a", model="1", optim="1"), _copies(tmp_path / "b")
    first.begin()
    first.look(0.0)
    write_bytes, writes = Path.write_bytes, itertools.count()

    def killed(path: Path, data: bytes) -> int:
        if next(writes) == 1:
            raise KeyboardInterrupt
        return write_bytes(path, data)

    monkeypatch.setattr(Path, "write_bytes", killed)
    with pytest.raises(KeyboardInterrupt):
        second.restore()
    monkeypatch.undo()
    second.restore()
    (tmp_path / "b" / "model").write_text("2")
    second.restore()
    assert _files(tmp_path / "b") == {"model": "2", "optim": "1"}


def test_copies_go_on_after_a_lost_answer_and_the_last_are_tried_until_they_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = _copies(tmp_path / "a", epoch="1")
    put_bytes, losses = LocalObjects.put_bytes, [1]

    def put_without_an_answer(objects: LocalObjects, key: str, data: bytes) -> bool:
        created = put_bytes(objects, key, data)
        if losses[0]:
            losses[0] -= 1
            raise StoreError("no answer")
        return created

    monkeypatch.setattr(LocalObjects, "put_bytes", put_without_an_answer)
    copies.begin()
    copies.look(0.0)
    for last in ("2", "3"):
        (tmp_path / "a" / "epoch").write_text(last)
        losses[0] = 2
        assert copies.close(10.0)
        restored = _copies(tmp_path / f"restored-{last}")
        restored.restore()
        assert _files(tmp_path / f"restored-{last}") == {"epoch": last}
    (tmp_path / "a" / "epoch").write_text("4")
    losses[0] = 1000
    assert not copies.close(0.0)


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


def test_a_node_sends_signs_of_life_while_the_first_rank_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait of torch holds the connection of the agent: the others took such a node for lost."""
    server = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    connection = TCPStore("localhost", server.port, is_master=False, timeout=timedelta(seconds=10))
    waiting = threading.Thread(target=await_address, args=(PrefixStore("round", connection),))
    waiting.start()
    for number in range(10):
        connection.set("alive", str(number))
        time.sleep(0.05)
    assert waiting.is_alive() and server.get("alive") == b"9"
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        server.set(f"round/{name}", "there")
    waiting.join(timeout=60)
    assert not waiting.is_alive()
    monkeypatch.setattr("gatehouse.launchers.wrapper._ADDRESS_SECONDS", 0.1)
    with pytest.raises(RendezvousTimeoutError):
        await_address(PrefixStore("another round", connection))
