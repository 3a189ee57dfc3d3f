"""A task in a process of the fork server is a process like any other: its code, streams, folder and environment."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_RUN = """
import json, os, sys
from gatehouse.kfp.warm_tasks import _run, start_importing

program, folder, text = sys.argv[1:]
start_importing()
outputs = {"parameters": {"Output": {"outputFile": f"{folder}/Output"}}, "outputFile": f"{folder}/out.json"}
executor_input = json.dumps({"inputs": {"parameterValues": {"text": text}}, "outputs": outputs})
arguments = ["--executor_input", executor_input, "--function_to_execute", "task"]
os.chdir(folder)
print("code", _run(["sh", "-ec", "script", program, *arguments], {"SEEN": f"{folder}/seen.json"}))
print("code", _run(["sh", "-ec", "script", program, *arguments], {"SEEN": "seen.json"}))
"""
_PROGRAM = """
import json, os, sys
from kfp import dsl
from kfp.dsl import *

def task(text: str) -> str:
    print("out")
    print("err", file=sys.stderr)
    with open(os.environ["SEEN"], "w") as stream:
        json.dump(dict(text=len(text), cwd=os.getcwd(), pid=os.getpid(), kfp="kfp.client" in sys.modules), stream)
    if text.startswith("fail"):
        raise ValueError("as asked")
    if text.startswith("exit"):
        raise SystemExit(7)
    if text.startswith("kill"):
        os.kill(os.getpid(), 9)
    return text
"""


@pytest.mark.parametrize(("text", "code"), [("x" * 100_000, 0), ("fail", 1), ("exit", 7), ("kill", -9)])
def test_a_task_has_its_own_streams_folder_and_environment_and_ends_with_its_code(
    tmp_path: Path, text: str, code: int
) -> None:
    command = [sys.executable, "-c", _RUN, _PROGRAM, str(tmp_path), text]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    codes = [line for line in ended.stdout.splitlines() if line.startswith("code")]
    assert codes == [f"code {code}"] * 2, "a task that fails leaves the server as it was"
    assert "out" in ended.stdout and "err" in ended.stderr
    assert ("ValueError: as asked" in ended.stderr) == (text == "fail")
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert (seen["text"], seen["cwd"], seen["kfp"]) == (len(text), str(tmp_path), False)
    assert seen["pid"] != os.getpid()
    if code == 0:
        assert json.loads((tmp_path / "out.json").read_text())["parameterValues"]["Output"] == text
