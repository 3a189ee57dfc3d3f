"""Runs a program in a process group of its own, and tells what the candidate did from what was done to it."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gatehouse.errors import GatehouseError
from gatehouse.runtime.process import stop_tree
from gatehouse.store.hidden_values import unless_hidden


class UntriedError(GatehouseError):
    """A limit of time, a signal or the store ended a try of the candidate: another attempt may find how it does."""


def run(
    arguments: list[str], seconds: float, folder: Path, environment: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run a Python program; return its exit code and the last line that it wrote, unless values are hidden.

    Its child processes are ended too.

    Args:
        arguments: Of the interpreter.
        seconds: After which the program is ended.
        folder: Where it runs.
        environment: All of its variables; those of this process where none are given.

    Raises:
        UntriedError: if it takes longer, or a signal ends it.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as written:
        child = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        try:
            code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise UntriedError(
                f"{' '.join(arguments[:2])}: expected it to end within {seconds:g} s, but it is still running. Run "
                "again; if it takes as long on an idle machine, use fewer rows (`integration.rows`)."
            ) from None
        finally:
            stop_tree(child.pid, grace=0.0)
            with contextlib.suppress(ProcessLookupError):  # Nobody of the group is left.
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        written.seek(0)
        said = written.read().strip().splitlines()
    if code < 0:
        raise UntriedError(
            f"{' '.join(arguments[:2])}: expected an exit code, but it was ended by {signal.Signals(-code).name}. Run "
            "again; SIGKILL mostly means that there was too little memory: give the task more."
        )
    return code, unless_hidden(said[-1]) if said else "nothing was said"


def described(error: GatehouseError) -> dict[str, Any]:
    """An error as a program of the suite writes it down."""
    return {"name": type(error).__name__, "permanent": error.permanent, "message": str(error)}


def require_permanent(error: Mapping[str, Any]) -> None:
    """Check that the error that a program recorded is permanent: that every further attempt would meet it too.

    Raises:
        UntriedError: if another attempt may end otherwise.
    """
    if not error["permanent"]:
        said = unless_hidden(error["message"]).rstrip(".")
        raise UntriedError(f"The candidate could not be tried: {error['name']}: {said}. Run again.")
