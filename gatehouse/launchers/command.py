"""The program of a job that runs a command of the user's own: any script that torchrun can start, as it is.

Each worker of torchrun runs it, and it runs the command, which needs no protocol. A command of one process needs no
torchrun. The job has succeeded if the command ended with 0 everywhere, and rank 0 left a file in `$GATEHOUSE_OUTPUT`.
`$GATEHOUSE_CHECKPOINTS` is a folder that survives restarts of the command, its pod and its task, and
`$GATEHOUSE_INPUT_<NAME>` the file or folder of an input.
"""

import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from gatehouse.errors import GatehouseError, MissingArtifactError, StoreError
from gatehouse.launchers import launcher
from gatehouse.launchers.launcher import CHECKPOINTS, FAILURE, JOB, OUTPUT, PREEMPTED_CODE, RESULT, WEIGHTS
from gatehouse.launchers.rank_files import FLAG, OUTCOME, Preempted
from gatehouse.runtime.process import die_with_parent, follow_owner
from gatehouse.store.atomic_file import write_json
from gatehouse.store.canonical import sha256_of
from gatehouse.store.objects.opening import open_objects
from gatehouse.store.records import create_record, read_record, remove_record
from gatehouse.tracking.place import OWN_TOKEN, OWN_URI, TOKEN, URI

logger = logging.getLogger(__name__)

_COPY_SECONDS = 5.0


class CheckpointCopies:
    """Copies of the checkpoints of a command in a store, for a machine or pod that takes over.

    They are under `scratch/checkpoints/<name>`: files by digest, and numbered lists. The command writes files as it
    likes: the last whole copy of a file is kept while the file changes.
    """

    def __init__(self, store: str, name: str, folder: Path) -> None:
        self._objects, self._prefix, self._folder = open_objects(store), f"scratch/checkpoints/{name}", folder
        self._copied: dict[str, tuple[list[int], str]] | None = None  # State and copy's digest by file.
        self._next, self._number = 0.0, -1  # When it looks, and the list that it found or wrote last.

    def restore(self, *, exactly: bool = False) -> None:
        """Write the files of the newest list, unless the folder has files; with `exactly`, remove or replace those.

        The files of one machine are newer than their copies. Several machines must go on from the same files.
        """
        if not exactly and any(self._folder.iterdir()):
            return
        number, files = self._newest()
        for path in [path for path in self._folder.rglob("*") if path.is_file()]:
            if sha256_of(path) != files.get(path.relative_to(self._folder).as_posix()):
                path.unlink()
        try:
            for name, digest in files.items():
                if not (path := self._folder / name).exists():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(self._objects.get_bytes(f"{self._prefix}/{digest}"))
        except MissingArtifactError:
            if self._newest()[0] == number:
                raise
            self.restore(exactly=True)  # A newer list has replaced this one.

    def look(self, now: float, *, ended: bool = False) -> None:
        """Copy the files that changed since the last look, some seconds ago, or before the command has `ended`."""
        if now < self._next and not ended:
            return
        self._next = now + _COPY_SECONDS
        try:
            paths = [path for path in sorted(self._folder.rglob("*")) if path.is_file()]
            copies = {path.relative_to(self._folder).as_posix(): self._copy(path) for path in paths}
            if (copied := {name: copy for name, copy in copies.items() if copy}) != self._copied:
                digests, (number, files) = {name: digest for name, (_, digest) in copied.items()}, self._newest()
                if self._copied is not None and number > self._number:
                    raise StoreError("another machine goes on with this job.")
                self._number = number + (digests != files)  # The list may be there although the store did not answer.
                if digests != files:
                    key = f"{self._prefix}/files-{self._number:08d}.json"
                    create_record(self._objects, key, {"files": digests})
                    for other in list(self._objects.list(self._prefix)):
                        if other != key and other.rpartition("/")[2] not in digests.values():
                            remove_record(self._objects, other)
                self._copied = copied
        except (GatehouseError, OSError) as error:  # It is tried again; the command goes on.
            logger.warning("Checkpoints are not copied for now: %s", error)

    def _copy(self, path: Path) -> tuple[list[int], str] | None:
        kept = (self._copied or {}).get(path.relative_to(self._folder).as_posix())
        # The command may write, rename or remove the file meanwhile.
        with suppress(FileNotFoundError), tempfile.NamedTemporaryFile() as frozen:
            if (before := _state(path)) != (kept and kept[0]):
                shutil.copyfile(path, frozen.name)
                if _state(path) == before:
                    digest = sha256_of(Path(frozen.name))
                    self._objects.put_file(f"{self._prefix}/{digest}", Path(frozen.name))
                    return before, digest
        return kept

    def _newest(self) -> tuple[int, dict[str, str]]:
        """Number of the newest list and the digest of each file in it; -1 and no files if there is no list."""
        while lists := sorted(key for key in self._objects.list(self._prefix) if "/files-" in key):
            if record := read_record(self._objects, lists[-1]):  # Else a newer one has replaced it.
                return int(lists[-1][-13:-5]), record["files"]
        return -1, {}


def _state(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_ino, stat.st_size, stat.st_mtime_ns]


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
