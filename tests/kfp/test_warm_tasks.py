"""A task in a process of the fork server is a process like any other: its code, streams, folder and environment."""

import json
import os
import subprocess
import sys
from pathlib import Path

_RUN = """
import json, os, sys
from gatehouse.kfp.warm_tasks import _run, start_importing

program, folder = sys.argv[1:]
start_importing()
for text in ("x" * 100_000, "fail", "exit", "kill"):
    place = f"{folder}/{text[:4]}"
    os.mkdir(place)
    os.chdir(place)
    outputs = {"parameters": {"Output": {"outputFile": f"{place}/Output"}}, "outputFile": f"{place}/out.json"}
    executor_input = json.dumps({"inputs": {"parameterValues": {"text": text}}, "outputs": outputs})
    arguments = ["--executor_input", executor_input, "--function_to_execute", "task"]
    seen = (f"{place}/seen.json", "seen.json")
    codes = [_run(["sh", "-ec", "script", program, *arguments], {"SEEN": path}) for path in seen]
    print("codes", text[:4], *codes)
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
    if text == "fail":
        raise ValueError("as asked")
    if text == "exit":
        raise SystemExit(7)
    if text == "kill":
        os.kill(os.getpid(), 9)
    return text
"""


def test_a_task_has_its_own_streams_folder_and_environment_and_ends_with_its_code(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _RUN, _PROGRAM, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    codes = [line for line in ended.stdout.splitlines() if line.startswith("codes")]
    # Each runs twice: a task that fails leaves the server as it was.
    assert codes == ["codes xxxx 0 0", "codes fail 1 1", "codes exit 7 7", "codes kill -9 -9"]
    assert ended.stdout.splitlines().count("out") == ended.stderr.splitlines().count("err") == 8
    assert ended.stderr.count("ValueError: as asked") == 2
    for name, length in (("xxxx", 100_000), ("fail", 4), ("exit", 4), ("kill", 4)):
        seen = json.loads((tmp_path / name / "seen.json").read_text())
        assert (seen["text"], seen["cwd"], seen["kfp"]) == (length, str(tmp_path / name), False)
        assert seen["pid"] != os.getpid()
    assert json.loads((tmp_path / "xxxx" / "out.json").read_text())["parameterValues"]["Output"] == "x" * 100_000
