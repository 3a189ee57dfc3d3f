"""The program of a job that runs a command of the user's own: any script that torchrun can start, as it is.

Each worker of torchrun runs it, and it runs the command, which needs no protocol. A command of one process needs no
torchrun. The job has succeeded if the command ended with 0 everywhere, and rank 0 left a file in `$GATEHOUSE_OUTPUT`.
`$GATEHOUSE_CHECKPOINTS` is a folder that survives restarts of the command, its pod and its task, and
`$GATEHOUSE_INPUT_<NAME>` the file or folder of an input.
"""

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

from gatehouse.errors import GatehouseError
from gatehouse.launchers import launcher
from gatehouse.launchers.checkpoint_copies import CheckpointCopies
from gatehouse.launchers.launcher import CHECKPOINTS, FAILURE, JOB, OUTPUT, PREEMPTED_CODE, RESULT, WEIGHTS
from gatehouse.launchers.rank_files import FLAG, OUTCOME, Preempted
from gatehouse.runtime.process import die_with_parent, follow_owner
from gatehouse.store.atomic_file import write_json
from gatehouse.store.canonical import sha256_of
from gatehouse.tracking.place import OWN_TOKEN, OWN_URI, TOKEN, URI

CODE, INPUTS = "code", "inputs"
"""Folders of the job's directory: the user's program, where the command starts, and a file or folder for each input."""
_COMPLETE = "output-complete"
_LOOK_SECONDS = 0.2
VARIABLE = re.compile(r"\$(\{)?(GATEHOUSE_\w+)(?(1)\})")  # Other expansions are a shell's.


def preload(directory: Path) -> bool:
    """Prepare the folders of the job, once before its workers; they may be forked, as nothing is imported here."""
    shutil.rmtree(directory / OUTPUT, ignore_errors=True)
    (directory / _COMPLETE).unlink(missing_ok=True)
    (directory / CHECKPOINTS).mkdir(exist_ok=True)
    restore(directory)
    return True


def restore(directory: Path, *, exactly: bool = False) -> None:
    """Write the checkpoints of the store; with `exactly`, before each start of the workers of one of several nodes."""
    try:
        if copies := _copies(directory):
            copies.restore(exactly=exactly)
    except GatehouseError as error:
        sys.stderr.write(f"The checkpoints cannot be read: {error}\n")
        sys.exit(launcher.RETRY_CODE)


def main() -> None:
    """Run the command: a worker of torchrun once, a single process again after each signal, as often as allowed."""
    directory, attempts = Path(sys.argv[1]), sys.argv[2:]
    die_with_parent()
    follow_owner()
    for _ in range(int(attempts[0]) + 1 if attempts else 1):
        if attempts:
            preload(directory)
        if (code := _run(directory)) >= 0:
            break
        sys.stderr.write(f"The command was ended by {signal.Signals(-code).name}.\n")
    if code == PREEMPTED_CODE and Path(os.environ[OUTCOME]).exists():
        return  # torchrun would start it again; the wrapper reads the outcome.
    if code == 0 and (rank := os.environ.get("RANK", "0")) == "0":
        (directory / _COMPLETE).write_text(str(_output(directory)))
    elif code == 0 and os.environ["GROUP_RANK"] != "0" and any(map(Path.is_file, _output(directory).rglob("*"))):
        code, why = 1, f"rank {rank} left files on another machine than rank 0, whose $GATEHOUSE_OUTPUT alone is kept."
        write_json(
            directory / FAILURE, {"message": f"{why} Let rank 0 gather them, or copy them from a shared volume."}
        )
    if not attempts:
        if code < 0:  # torchrun must see the signal.
            with suppress(OSError):  # SIGKILL has no handler.
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        sys.exit(code)
    if 0 < code < launcher.RETRY_CODE:
        write_json(directory / FAILURE, {"message": f"the command ended with exit code {code}, expected 0."})
    sys.exit(128 - code if code < 0 else code or finish(directory))


def finish(directory: Path) -> int:
    """Pack the output folder of rank 0, when all workers of this machine have ended well; returns an exit code."""
    if not (directory / _COMPLETE).exists():
        return 0
    output = Path((directory / _COMPLETE).read_text())
    files = sorted(path for path in output.rglob("*") if path.is_file())
    if not files and json.loads((directory / JOB).read_text())["output"]:
        message = "the command ended with exit code 0, and left no file in $GATEHOUSE_OUTPUT."
        write_json(directory / FAILURE, {"message": message})
        return 1
    with tarfile.open(directory / WEIGHTS, "w") as archive:
        for path in files:
            entry = tarfile.TarInfo(path.relative_to(output).as_posix())  # Without owner and time, which differ.
            with open(path, "rb") as content:
                entry.size = os.fstat(content.fileno()).st_size
                archive.addfile(entry, content)
    write_json(directory / RESULT, {"weights_sha256": sha256_of(directory / WEIGHTS)})
    return 0


def _run(directory: Path) -> int:
    """Run the command to its end; returns its exit code, negative for a signal, or `PREEMPTED_CODE`."""
    job, code = json.loads((directory / JOB).read_text()), directory / CODE
    _output(directory).mkdir(parents=True, exist_ok=True)
    own = {"GATEHOUSE_OUTPUT": str(_output(directory)), "GATEHOUSE_CHECKPOINTS": str(directory / CHECKPOINTS)}
    own |= {f"GATEHOUSE_INPUT_{path.name.upper()}": str(path) for path in (directory / INPUTS).glob("*")}
    write_json(directory / "parameters.json", job["parameters"])
    own["GATEHOUSE_PARAMETERS"] = str(directory / "parameters.json")
    if (uri := os.environ.get(OWN_URI)) and job["environment"].get(URI) == uri:
        own[TOKEN] = os.environ.get(OWN_TOKEN, "")
    # `python` and `torchrun` are those of this interpreter, also where its environment is not activated.
    own["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    process = subprocess.Popen(
        [VARIABLE.sub(lambda found: own.get(found[2], found[0]), part) for part in job["command"]],
        cwd=code if code.exists() else None,
        env=os.environ | {"PYTHONUNBUFFERED": "1"} | own | job["environment"],
        preexec_fn=die_with_parent,
    )
    flag, terms = Path(os.environ[FLAG]), 0

    def end(*_: object) -> None:
        nonlocal terms
        terms += 1
        process.terminate()

    signal.signal(signal.SIGTERM, end)
    copies = _copies(directory) if os.environ.get("RANK", "0") == "0" else None
    while (ended := process.poll()) is None:
        if not terms and flag.exists():
            end()
        if copies:
            copies.look(time.monotonic())
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_LOOK_SECONDS)
    if copies and ended != -signal.SIGKILL:  # A killed command may have left half a file.
        copies.look(time.monotonic(), ended=True)
    if ended != 0 and flag.exists():
        Preempted(0, saved=True).write(Path(os.environ[OUTCOME]))
    return PREEMPTED_CODE if ended != 0 and terms else ended


def _output(directory: Path) -> Path:
    """The output folder of this attempt: one that was killed may have left half a result in its own."""
    return directory / OUTPUT / os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")


def _copies(directory: Path) -> CheckpointCopies | None:
    """The copies of the checkpoints in the store of the job; None where the machine keeps them itself."""
    address = os.environ.get(launcher.CHECKPOINT_STORE) or json.loads((directory / JOB).read_text())["store"]
    name = os.environ.get(launcher.CHECKPOINT_NAME, directory.name)
    return CheckpointCopies(address, name, directory / CHECKPOINTS) if address else None


if __name__ == "__main__":
    main()
