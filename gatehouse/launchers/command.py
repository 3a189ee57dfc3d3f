"""The program of a job that runs a command of the user's own: any script that torchrun can start, as it is.

Each worker of torchrun runs it, and it runs the command, which needs no protocol. A command of one process needs no
torchrun. The job has succeeded if the command ended with 0 everywhere, and rank 0 left a file in `$GATEHOUSE_OUTPUT`.
`$GATEHOUSE_CHECKPOINTS` is a folder that survives restarts of the command, its pod and its task, and
`$GATEHOUSE_INPUT_<NAME>` the file or folder of an input.
"""

import faulthandler
import json
import logging
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

from gatehouse.errors import ConfigurationError, GatehouseError, MissingArtifactError, StoreError
from gatehouse.launchers import launcher
from gatehouse.launchers.launcher import (
    CHECKPOINTS,
    FAILURE,
    JOB,
    OUTPUT,
    PREEMPTED_CODE,
    RENDEZVOUS,
    RESULT,
    WEIGHTS,
    note_attempt,
)
from gatehouse.launchers.ranks import FLAG, FOLDER, OUTCOME, STACKS_SIGNAL, Flag, Heartbeat, Preempted, stacks_file
from gatehouse.runtime.process import descendants, die_with_parent, follow_owner
from gatehouse.store.atomic_file import write_json
from gatehouse.store.canonical import sha256_of
from gatehouse.store.objects.opening import open_objects
from gatehouse.store.publishing import files_of
from gatehouse.store.records import create_record, read_record, remove_record
from gatehouse.tracking.place import OWN_TOKEN, OWN_URI, TOKEN, URI

logger = logging.getLogger(__name__)

_COPY_SECONDS = 5.0
_CLOSED = -1


class Nodes:
    """The nodes of one start of the workers. Rank 0's begins rounds, and each other one answers with its changes.

    They talk through the store of torchrun's rendezvous. Its errors are RuntimeErrors.
    """

    def __init__(self, endpoint: str) -> None:
        """Connect; call it in a worker."""
        from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]  # They are public.

        self.rank, self._count = int(os.environ["GROUP_RANK"]), int(os.environ["GROUP_WORLD_SIZE"])
        host, _, port = endpoint.rpartition(":")
        start = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"  # Each start has a port of its own.
        self._store = PrefixStore(
            f"gatehouse/{start}", TCPStore(host, int(port), is_master=False, wait_for_workers=False)
        )

    def begin(self) -> int:
        """Begin a round; returns its number."""
        number = time.time_ns()
        self._store.set("round", str(number))
        return number

    def begun(self) -> int:
        """The number of the last round; 0 before the first."""
        return int(self._store.get("round")) if self._store.check(["round"]) else 0

    def answer(self, number: int, changes: Any) -> None:
        """Answer a round."""
        self._store.set(f"answer-{self.rank}", json.dumps([number, changes]))

    def answers(self, number: int) -> list[Any] | None:
        """What all other nodes answered to a round; None if one has not answered yet."""
        keys = [f"answer-{rank}" for rank in range(1, self._count)]
        answers = [json.loads(answer) for answer in self._store.multi_get(keys)] if self._store.check(keys) else []
        return [changes for _, changes in answers] if {answered for answered, _ in answers} == {number} else None

    def close(self) -> None:
        """No round follows."""
        self._store.set("round", str(_CLOSED))


class CheckpointCopies:
    """Copies of the checkpoints of a command in a store, for a machine or pod that takes over.

    They are under `scratch/checkpoints/<name>`: files by digest, and numbered lists. The command writes files as it
    likes: the last whole copy of a file is kept while the file changes. The folders of several nodes are kept as if
    they were one shared folder: what one node wrote or removed is there or gone for all at the next start. A list holds
    what rank 0's node has at some moment and what each other node has at a later one, so the file that rank 0 writes
    last, such as the metadata of a sharded checkpoint, is in no list without the shards that it names.
    """

    def __init__(self, store: str, name: str, folder: Path) -> None:
        self._objects, self._prefix, self._folder = open_objects(store), f"scratch/checkpoints/{name}", folder
        self._restoring = folder.with_name(f"{folder.name}-restoring")
        self._nodes: Nodes | None = None
        self._token = uuid.uuid4().hex  # Marks the lists of this process.
        self._number, self._base = -1, dict[str, str]()  # The last list, and the files of that from which all began.
        self._began: dict[str, list[int]] = {}  # State of the files of `_base` on this node when the command began.
        self._copied: dict[str, tuple[list[int], str]] = {}  # State and copy's digest by file.
        self._next, self._round, self._own = 0.0, 0, dict[str, Any]()

    def restore(self, *, exactly: bool = False) -> None:
        """Write the files of the newest list, unless the folder has files; with `exactly`, remove or replace those.

        The files of one machine are newer than their copies, unless `restore` was killed while it wrote them. Several
        machines must go on from the same files.
        """
        if not exactly and any(self._folder.iterdir()) and not self._restoring.exists():
            return
        self._restoring.touch()
        number, files, _ = self._newest()
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
        self._restoring.unlink(missing_ok=True)

    def begin(self, nodes: Nodes | None = None) -> None:
        """Call it before the command starts; with several nodes after `restore` on each."""
        self._nodes, (self._number, files, _) = nodes, self._newest()
        if nodes:
            self._base = files
            self._began = {name: _state(self._folder / name) for name in files}
            self._copied = {name: (self._began[name], digest) for name, digest in files.items()}

    def look(self, now: float) -> None:
        """Copy the files that changed since the last look, some seconds ago, or that a new round asks for."""
        try:
            self._look(now)
        except (GatehouseError, OSError, RuntimeError) as error:  # It is tried again; the command goes on.
            self._next = now + _COPY_SECONDS
            logger.warning("Checkpoints are not copied for now: %s", error)

    def close(self, seconds: float) -> bool:
        """Copy what the command left at its end, and try for so many seconds; returns whether it is copied.

        On other nodes than rank 0's: whether rank 0's node has begun a round, and this one has answered.
        """
        until, copied = time.monotonic() + seconds, False
        if leads := not (self._nodes and self._nodes.rank):
            self._round = 0  # A round that has begun may be older than the last files.
        self._next = 0.0
        while True:
            problem: object = "another node did not answer."
            try:
                copied = self._look(time.monotonic())
            except (GatehouseError, OSError, RuntimeError) as error:
                problem, self._next = error, 0.0
            if copied or self._round == _CLOSED:
                break
            if time.monotonic() > until:
                logger.warning("The last checkpoints are not copied: %s", problem)
                break
            time.sleep(_LOOK_SECONDS / 4)
        if leads and self._nodes:
            with suppress(RuntimeError):
                self._nodes.close()
        return copied

    def _look(self, now: float) -> bool:
        """Returns whether a list with the changes of this node's files is there, or whether it has answered a round."""
        if self._nodes and self._nodes.rank:
            if now < self._next or (number := self._nodes.begun()) == self._round:
                return False
            self._nodes.answer(number, self._changes())
            self._round = number
            return number != _CLOSED
        if now >= self._next and not self._round:
            self._next, self._own = now + _COPY_SECONDS, self._changes()
            self._round = self._nodes.begin() if self._nodes else 1
        number, self._round = self._round, 0
        answers = self._nodes.answers(number) if self._nodes and number else []
        if not number or answers is None:
            self._round = number
            return False
        self._list([*answers, self._own])
        return True

    def _changes(self) -> dict[str, Any]:
        """The files that are new or other since the command began, with the digests of their copies, and those gone."""
        paths = {path.relative_to(self._folder).as_posix(): path for path in sorted(self._folder.rglob("*"))}
        copies = {name: self._copy(name, path) for name, path in paths.items() if path.is_file()}
        self._copied = {name: copy for name, copy in copies.items() if copy}
        files = {name: digest for name, (state, digest) in self._copied.items() if state != self._began.get(name)}
        return {"files": files, "gone": [name for name in self._base if name not in paths]}

    def _copy(self, name: str, path: Path) -> tuple[list[int], str] | None:
        kept = self._copied.get(name)
        # The command may write, rename or remove the file meanwhile.
        with suppress(FileNotFoundError), tempfile.NamedTemporaryFile() as frozen:
            if (before := _state(path)) != (kept and kept[0]):
                shutil.copyfile(path, frozen.name)
                if _state(path) == before:
                    digest = sha256_of(Path(frozen.name))
                    self._objects.put_file(f"{self._prefix}/{digest}", Path(frozen.name))
                    return before, digest
        return kept

    def _list(self, changes: list[dict[str, Any]]) -> None:
        """Write a list of the files with the changes of all nodes, and remove what the list before it alone needed."""
        gone = {name for change in changes for name in change["gone"]}
        files = {name: digest for name, digest in self._base.items() if name not in gone}
        for change in changes:
            files |= change["files"]
        number, listed, token = self._newest()
        if files != listed:  # Else the list may be there although the store did not answer.
            new = number + 1, files, self._token
            created = (number <= self._number or token == self._token) and create_record(
                self._objects, f"{self._prefix}/files-{number + 1:08d}.json", {"files": files, "by": self._token}
            )
            if not created and self._newest() != new:  # Its creation may have been repeated after a lost answer.
                raise StoreError("another machine goes on with this job.")
            for digest in set(listed.values()) - set(files.values()):
                remove_record(self._objects, f"{self._prefix}/{digest}")
            if listed or number >= 0:
                remove_record(self._objects, f"{self._prefix}/files-{number:08d}.json")
            number += 1
        self._number = number

    def _newest(self) -> tuple[int, dict[str, str], str]:
        """Number of the newest list, the digest of each file in it, and its writer; -1 and no files without a list."""
        while lists := sorted(key for key in self._objects.list(self._prefix) if "/files-" in key):
            if record := read_record(self._objects, lists[-1]):  # Else a newer one has replaced it.
                return int(lists[-1][-13:-5]), record["files"], record["by"]
        return -1, {}, ""


def _state(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_ino, stat.st_size, stat.st_mtime_ns]


CODE, INPUTS = "code", "inputs"
"""Folders of the job's directory: the user's program, where the command starts, and a file or folder for each input."""
_COMPLETE = "output-complete"
_LOOK_SECONDS = 0.2
_LAST_LINES_SECONDS, _END_SECONDS = 5.0, 30.0
_OUTCOME_SECONDS = 1.0  # from the last try to copy to the deadline of the wrapper, which reads the outcome
VARIABLE = re.compile(r"\$(\{)?(GATEHOUSE_\w+)(?(1)\})")  # Other expansions are a shell's.


def preload(directory: Path) -> bool:
    """Prepare the folders of the job, once before its workers; they may be forked, as nothing is imported here."""
    (directory / CHECKPOINTS).mkdir(exist_ok=True)
    restore(directory)
    return True


def restore(directory: Path, ranks: Sequence[int] = ()) -> None:
    """Remove half an output, and write the checkpoints of the store.

    Exactly these, with the `ranks` of one of several nodes, before each start of its workers.
    """
    shutil.rmtree(directory / OUTPUT, ignore_errors=True)
    (directory / _COMPLETE).unlink(missing_ok=True)
    try:
        if copies := _copies(directory):
            copies.restore(exactly=bool(ranks))
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
            note_attempt(directory, "The command starts", start=True)
        if (code := _run(directory)) >= 0:
            break
        sys.stderr.write(f"The command was ended by {signal.Signals(-code).name}.\n")
        if attempts:
            note_attempt(directory, f"The command was ended by {signal.Signals(-code).name}")
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
    try:
        files = files_of(output)
    except ConfigurationError as error:
        files = {}
        if json.loads((directory / JOB).read_text())["output"]:
            message = f"the command ended with exit code 0, and left no model in $GATEHOUSE_OUTPUT: {error}"
            write_json(directory / FAILURE, {"message": message})
            return 1
    with tarfile.open(directory / WEIGHTS, "w") as archive:
        for name, path in sorted(files.items()):
            entry = tarfile.TarInfo(name)  # Without owner and time, which differ.
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
    rank, several = os.environ.get("RANK", "0"), int(os.environ.get("GROUP_WORLD_SIZE", "1")) > 1
    copies = _copies(directory) if os.environ.get("LOCAL_RANK", "0") == "0" else None
    try:
        if copies:
            copies.begin(Nodes(os.environ[RENDEZVOUS]) if several else None)
    except (GatehouseError, RuntimeError) as error:
        sys.stderr.write(f"The checkpoints cannot be read: {error}\n")
        sys.exit(launcher.RETRY_CODE)
    # faulthandler writes the stacks of a Python program that is aborted, without a line of the program's own.
    process = subprocess.Popen(
        [VARIABLE.sub(lambda found: own.get(found[2], found[0]), part) for part in job["command"]],
        cwd=code if code.exists() else None,
        env=os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"} | own | job["environment"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=die_with_parent,
    )
    heartbeat, folder = Heartbeat.of_environment(int(rank)), os.environ.get(FOLDER, "")
    flag, terms, aborted = Path(os.environ[FLAG]), 0, False

    def pass_on() -> None:
        """Pass the output on in whole lines, which torchrun prefixes. Printing is the progress that a command shows."""
        data, rest = b"first", b""
        while data or rest:
            data = process.stdout.read1(1 << 16)  # type: ignore[union-attr]  # It is a pipe.
            end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1 if data else 0
            lines, rest = (rest + data[:end], data[end:]) if end or not data else (b"", rest + data)
            with suppress(OSError):  # A full disk costs the log, and a full pipe would block the command.
                sys.stdout.buffer.write(lines)
                sys.stdout.buffer.flush()
            if heartbeat:
                heartbeat.beat(0)
            if aborted:
                with suppress(OSError), open(stacks_file(Path(folder), int(rank)), "ab") as file:
                    file.write(lines)

    def end(*_: object) -> None:
        nonlocal terms
        terms += 1
        process.terminate()

    def abort(*_: object) -> None:
        nonlocal aborted
        aborted = True
        for pid in [*descendants(process.pid), process.pid]:
            with suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
                os.kill(pid, signal.SIGABRT)

    reader = Thread(target=pass_on, daemon=True)
    reader.start()
    signal.signal(signal.SIGTERM, end)
    if heartbeat:
        faulthandler.unregister(STACKS_SIGNAL)
        signal.signal(STACKS_SIGNAL, abort)
    while (ended := process.poll()) is None:
        if not terms and flag.exists():
            end()
        if copies:
            copies.look(time.monotonic())
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_LOOK_SECONDS)
    reader.join(timeout=_LAST_LINES_SECONDS)
    if aborted:
        time.sleep(_END_SECONDS)  # The wrapper reads the stacks, and ends this process.
    # A killed command may have left half a file, and of a good end nothing must be resumed.
    saved = copies is None  # Without a store, the machine itself keeps the files.
    if copies and ended not in (-signal.SIGKILL, 0):
        left = Flag.read(flag)
        saved = copies.close(left.deadline - time.monotonic() - _OUTCOME_SECONDS if left else _COPY_SECONDS)
    outcome = Path(os.environ[OUTCOME])
    # The first worker of a machine copies for all, so its outcome counts.
    if ended != 0 and flag.exists() and (os.environ.get("LOCAL_RANK", "0") == "0" or not outcome.exists()):
        Preempted(0, saved=saved).write(outcome)
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
