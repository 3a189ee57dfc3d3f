"""Starts the task processes of a local run from one warm interpreter, so that common imports happen only once.

KFP's local runner starts each task as `python3 -m kfp.dsl.executor_main …`. While a `ForkServer` is open, this
interpreter is replaced by a tiny client. The client sends its arguments, environment, working directory and standard
streams to a server that has KFP's runtime and the stages' light modules loaded. It ends with the exit code of the
process that the server forked for it. A task is still a separate process. If two tasks imported a library of `_SHARED`,
the server imports it too, so that later tasks have it already.
"""

import contextlib
import gc
import importlib
import marshal
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from gatehouse.runtime.process import die_with_parent

_HEADER = struct.Struct("!Q")
_SHARED = ("numpy", "pyarrow", "pyarrow.compute", "pyarrow.parquet", "duckdb", "pandas")
"""Libraries that most stages use when they run, but seldom when the result comes from the memo."""
# `socket` takes as long to import as the interpreter takes to start; `_socket` has all that is needed.
_CLIENT = """#!{python} -ISE
import _socket, marshal, os, sys
request = marshal.dumps((sys.argv[1:], dict(os.environ), os.getcwd()))
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
connection = _socket.socket(_socket.AF_UNIX)
connection.connect({address!r})
connection.sendmsg([len(request).to_bytes(8)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
connection.sendall(request)
answer = connection.recv(1)
sys.exit(answer[0] if answer else 1)
"""


class ForkServer:
    """While open, `sys.executable` is the client; afterwards it is the interpreter again."""

    def __init__(self) -> None:
        for folder in Path(tempfile.gettempdir()).glob("gatehouse-*-*"):  # Folders of servers that have ended.
            pid = folder.name.split("-")[1]
            if pid.isdigit() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(folder, ignore_errors=True)
        self._python = sys.executable
        self._folder = Path(tempfile.mkdtemp(prefix=f"gatehouse-{os.getpid()}-"))
        address = str(self._folder / "socket")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address)
        listener.listen()
        self._client = self._folder / "python"
        self._client.write_text(_CLIENT.format(python=self._python, address=address))
        self._client.chmod(0o700)
        self._server = subprocess.Popen(
            [self._python, "-m", "gatehouse.kfp.forkserver", str(listener.fileno()), str(os.getpid())],
            pass_fds=[listener.fileno()],
            stdin=subprocess.DEVNULL,
            env=os.environ | {"_KFP_RUNTIME": "true"},
        )
        # Now only the server holds it: if the server has ended, a client is refused and does not wait for ever.
        listener.close()

    def __enter__(self) -> "ForkServer":
        sys.executable = str(self._client)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.executable = self._python
        self._server.kill()
        self._server.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def serve(listener: socket.socket) -> NoReturn:
    """Serve clients until killed: for each, fork a process that runs its task, and report the exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    needing: Counter[str] = Counter()
    while True:
        connection, _ = listener.accept()
        with contextlib.suppress(BlockingIOError, ImportError):
            needing.update(os.read(read_end, 1 << 16).decode().split())
            # In a run where everything is in the memo, one task needs them; the others must not wait for the import.
            for name in (name for name in _SHARED if needing[name] > 1):
                importlib.import_module(name)
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            os.close(read_end)
            _answer(connection, write_end)
        connection.close()


def _answer(connection: socket.socket, write_end: int) -> NoReturn:
    header, streams, _, _ = socket.recv_fds(connection, _HEADER.size, 3)
    (size,) = _HEADER.unpack(header)
    request = b""
    while len(request) < size:
        request += connection.recv(size - len(request))
    arguments, environment, directory = marshal.loads(request)  # noqa: S302 - written by our own client, in our own folder
    task = os.fork()
    if task == 0:
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(directory)
        tempfile.tempdir = None
        _run(arguments, write_end)
    _, status = os.waitpid(task, 0)
    code = os.waitstatus_to_exitcode(status)
    # A shell reports a signal as 128 plus its number; so does the client.
    connection.sendall(bytes([code if code >= 0 else 128 - code]))
    os._exit(0)


def _run(arguments: list[str], write_end: int) -> NoReturn:
    from kfp.dsl.executor_main import executor_main

    code = 1
    try:
        if arguments[:2] != ["-m", "kfp.dsl.executor_main"]:
            raise RuntimeError(f"expected KFP's executor, found {arguments[:3]}")
        sys.argv = arguments[1:]
        executor_main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        with contextlib.suppress(OSError):  # the server may be gone
            os.write(write_end, " ".join(name for name in _SHARED if name in sys.modules).encode() + b" ")
        os._exit(code)


def preload() -> None:
    """Import KFP's runtime and the light module of every stage; stages import frameworks only inside functions."""
    gc.disable()  # Modules are no garbage, and scanning them takes a tenth of the time.
    importlib.import_module("kfp.dsl.executor_main")
    from gatehouse.store.stage import declared_stages

    declared_stages()
    gc.freeze()
    gc.enable()


if __name__ == "__main__":
    die_with_parent(int(sys.argv[2]))
    preload()
    serve(socket.socket(fileno=int(sys.argv[1])))
