"""The program of a job that runs a command of the user's own: any script that torchrun can start, as it is.

torchrun runs this program once for each worker, and it runs the command. A command of one process needs no torchrun:
the wrapper starts this program itself. The command gets paths in its environment, and needs no protocol:

| variable | path |
| --- | --- |
| `GATEHOUSE_OUTPUT` | an empty folder; what is in it at the end is the result of the job |
| `GATEHOUSE_CHECKPOINTS` | a folder that survives restarts of the command, of its pod, and of its task |
| `GATEHOUSE_INPUT_<NAME>` | the file or folder of an input |

The job has succeeded if the command ended with code 0 everywhere, and left a file in the output folder of rank 0.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from contextlib import suppress
from pathlib import Path

from gatehouse.launchers.checkpoint_copies import CheckpointCopies
from gatehouse.launchers.launcher import (
    CHECKPOINT_NAME,
    CHECKPOINT_STORE,
    CHECKPOINTS,
    FAILURE,
    JOB,
    OUTPUT,
    PREEMPTED_CODE,
    RESULT,
    WEIGHTS,
)
from gatehouse.launchers.rank_files import FLAG, Preempted
from gatehouse.launchers.rank_files import OUTCOME as ENDED
from gatehouse.runtime.process import die_with_parent, follow_owner
from gatehouse.store.atomic_file import write_json

CODE, INPUTS = "code", "inputs"
"""Folders of the job's directory: the user's program, where the command starts, and a file or folder for each input."""
_RANK_ZERO = "output-complete"
_LOOK_SECONDS = 0.2
_VARIABLE = re.compile(r"\$(?:(GATEHOUSE_\w+)|\{(GATEHOUSE_\w+)\})")


def preload(directory: Path) -> bool:
    """Prepare the folders of the job, once before its workers; they may be forked, as nothing is imported here."""
    shutil.rmtree(directory / OUTPUT, ignore_errors=True)
    (directory / _RANK_ZERO).unlink(missing_ok=True)
    for folder in (OUTPUT, CHECKPOINTS):
        (directory / folder).mkdir(exist_ok=True)
    if copies := _copies(directory):
        copies.restore()
    return True


def main() -> None:
    """Run the command: a worker of torchrun once, a single process again after each signal, as often as allowed."""
    directory = Path(sys.argv[1])
    die_with_parent()
    follow_owner()
    if "TORCHELASTIC_RUN_ID" in os.environ:
        sys.exit(_ended(_run(directory), directory))
    for _ in range(int(sys.argv[2]) + 1):
        preload(directory)
        if (code := _run(directory)) >= 0:
            break
        sys.stderr.write(f"The command was ended by {signal.Signals(-code).name}.\n")
    if 0 < code < PREEMPTED_CODE:
        write_json(directory / FAILURE, {"message": f"the command ended with exit code {code}, expected 0."})
    code = _ended(code, directory)
    sys.exit(code or finish(directory))


def finish(directory: Path) -> int:
    """Pack the output folder of rank 0, when all workers of this machine have ended well; returns an exit code."""
    if not (directory / _RANK_ZERO).exists():
        return 0
    output = directory / OUTPUT
    files = sorted(path for path in output.rglob("*") if path.is_file())
    if not files and json.loads((directory / JOB).read_text())["output"]:
        message = "the command ended with exit code 0, and left no file in $GATEHOUSE_OUTPUT."
        write_json(directory / FAILURE, {"message": message})
        return 1

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        """The entry without what differs between equal runs."""
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(directory / WEIGHTS, "w", dereference=True) as archive:
        for path in files:
            archive.add(path, path.relative_to(output).as_posix(), filter=plain)
    with open(directory / WEIGHTS, "rb") as packed:
        write_json(directory / RESULT, {"weights_sha256": hashlib.file_digest(packed, "sha256").hexdigest()})
    return 0


def _ended(code: int, directory: Path) -> int:
    """The exit code of this process for the command's; a process whose command was killed ends by the same signal."""
    if code < 0 and "TORCHELASTIC_RUN_ID" in os.environ:
        with suppress(OSError):  # SIGKILL has no handler.
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    if code == PREEMPTED_CODE and Path(os.environ[ENDED]).exists():
        return 0  # torchrun would start it again; the wrapper reads the outcome.
    if code == 0 and os.environ.get("RANK", "0") == "0":
        (directory / _RANK_ZERO).touch()
    return code if code >= 0 else 128 - code


def _run(directory: Path) -> int:
    """Run the command to its end; returns its exit code, negative for a signal, or `PREEMPTED_CODE`."""
    job = json.loads((directory / JOB).read_text())
    variables = {"GATEHOUSE_OUTPUT": str(directory / OUTPUT), "GATEHOUSE_CHECKPOINTS": str(directory / CHECKPOINTS)}
    for path in (directory / INPUTS).glob("*"):
        variables[f"GATEHOUSE_INPUT_{path.name.upper()}"] = str(path)
    if "parameters" in job:
        variables["GATEHOUSE_PARAMETERS"] = str(directory / "parameters.json")
        write_json(directory / "parameters.json", job["parameters"])
    # `python` and `torchrun` are those of this interpreter, also where its environment is not activated.
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    known = variables | job["environment"]
    command = [_VARIABLE.sub(lambda found: known.get(found[1] or found[2], found[0]), part) for part in job["command"]]
    code = directory / CODE
    command_line = subprocess.Popen(
        command,
        cwd=code if code.exists() else None,
        env=os.environ | {"PATH": programs, "PYTHONUNBUFFERED": "1"} | job["environment"] | variables,
        preexec_fn=die_with_parent,
    )
    flag, terms = Path(os.environ[FLAG]), 0

    def end(*_: object) -> None:
        nonlocal terms
        terms += 1
        command_line.terminate()

    signal.signal(signal.SIGTERM, end)
    copies = _copies(directory) if os.environ.get("RANK", "0") == "0" else None
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                ended = command_line.wait(timeout=_LOOK_SECONDS)
                break
            if not terms and flag.exists():
                end()
            if copies:
                copies.look(time.monotonic())
    finally:
        command_line.kill()
    if copies:
        copies.finish(whole=ended != -signal.SIGKILL)
    if ended != 0 and flag.exists():
        Preempted(0, saved=True).write(Path(os.environ[ENDED]))
    return PREEMPTED_CODE if ended != 0 and terms else ended


def _copies(directory: Path) -> CheckpointCopies | None:
    """The copies of the checkpoints in the store of the job; None where the machine keeps them itself."""
    address = os.environ.get(CHECKPOINT_STORE) or json.loads((directory / JOB).read_text()).get("store", "")
    name = os.environ.get(CHECKPOINT_NAME, directory.name)
    return CheckpointCopies(address, name, directory / CHECKPOINTS) if address else None


if __name__ == "__main__":
    main()
