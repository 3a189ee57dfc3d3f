"""The fork server: a task started through it is a process like any other, only sooner there."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gatehouse.kfp.forkserver import ForkServer
from gatehouse.runtime.process import descendants, start_time

PYTHON = sys.executable

_COMPONENT = """
import json, os, sys
from kfp import dsl
from kfp.dsl import *

def task(text: str) -> str:
    print("out")
    print("err", file=sys.stderr)
    with open(os.environ["SEEN"], "w") as stream:
        json.dump(dict(text=len(text), cwd=os.getcwd(), pid=os.getpid(), python=sys.executable), stream)
    if text.startswith("fail"):
        raise ValueError("as asked")
    if text.startswith("exit"):
        raise SystemExit(7)
    if text.startswith("kill"):
        os.kill(os.getpid(), 9)
    return text
"""

_OWNER = """
import time
from gatehouse.kfp.forkserver import ForkServer
with ForkServer():
    print("open", flush=True)
    time.sleep(60)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer() as opened:
        yield opened


def _run(folder: Path, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the component as KFP's local runner does, with the interpreter of the moment."""
    (folder / "ephemeral_component.py").write_text(_COMPONENT)
    outputs = {"parameters": {"Output": {"outputFile": str(folder / "Output")}}, "outputFile": str(folder / "out.json")}
    executor_input = json.dumps({"inputs": {"parameterValues": {"text": text}}, "outputs": outputs})
    command = [sys.executable, "-m", "kfp.dsl.executor_main", "--component_module_path"]
    return subprocess.run(
        [
            *command,
            str(folder / "ephemeral_component.py"),
            "--executor_input",
            executor_input,
            "--function_to_execute",
            "task",
        ],
        env=os.environ | {"_KFP_RUNTIME": "true", "SEEN": str(folder / "seen.json")} | environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_streams_directory_environment_and_output_are_the_task_s_own(server: ForkServer, tmp_path: Path) -> None:
    ended = _run(tmp_path, "x" * 100_000)
    assert ended.returncode == 0, ended.stderr
    assert "out" in ended.stdout and "err" in ended.stderr
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen["text"] == 100_000 and seen["cwd"] == str(tmp_path) and seen["pid"] != os.getpid()
    written = json.loads((tmp_path / "out.json").read_text())
    assert written["parameterValues"]["Output"] == "x" * 100_000


@pytest.mark.parametrize(("text", "code"), [("fail", 1), ("exit", 7), ("kill", 128 + signal.SIGKILL)])
def test_a_task_that_fails_ends_with_its_code(server: ForkServer, tmp_path: Path, text: str, code: int) -> None:
    ended = _run(tmp_path, text)
    assert ended.returncode == code
    assert ("ValueError: as asked" in ended.stderr) == (text == "fail")
    assert _run(tmp_path, "well").returncode == 0


def test_a_killed_owner_takes_the_server_along() -> None:
    owner = subprocess.Popen([PYTHON, "-c", _OWNER], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None and owner.stdout.readline() == "open\n"
    below = descendants(owner.pid)
    assert below
    owner.kill()
    owner.wait()
    deadline = time.monotonic() + 60
    while any(start_time(pid) for pid in below) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(start_time(pid) for pid in below)
