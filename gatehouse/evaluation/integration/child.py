"""Runs programs that try a candidate in a process group of their own: the serving program, and the project's tests."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gatehouse.errors import GatehouseError
from gatehouse.runtime.process import stop_tree
from gatehouse.store.hidden_values import hidden_columns, unless_hidden
from gatehouse.store.store import ArtifactStore


class UntriedError(GatehouseError):
    """A time limit, a signal or the store ended a try of the candidate: another attempt may have another outcome."""


def run(
    arguments: list[str], seconds: float, folder: Path, environment: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run a Python program; return its exit code and the last line that it wrote, unless values are hidden.

    Its child processes are ended too. Raises UntriedError if it takes longer, or a signal ends it.
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
                f"{' '.join(arguments[:2])}: expected it to end within {seconds:g} s, but it is still running."
            ) from None
        finally:
            stop_tree(child.pid, grace=0.0)
            with contextlib.suppress(ProcessLookupError):  # Nobody of the group is left.
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        written.seek(0)
        lines = written.read().strip().splitlines()
    if code < 0:
        raise UntriedError(
            f"{' '.join(arguments[:2])}: expected an exit code, but it was ended by {signal.Signals(-code).name}."
        )
    return code, unless_hidden(lines[-1]) if lines else "it wrote nothing"


def require_permanent(error: Mapping[str, Any]) -> None:
    """Check that the error that a program recorded is permanent: that every further attempt would meet it too.

    Raises UntriedError if another attempt may end otherwise.
    """
    if not error["permanent"]:
        message = unless_hidden(error["message"]).rstrip(".")
        raise UntriedError(f"The candidate could not be tried: {error['name']}: {message}. Run again.")


PLUGIN = "gatehouse.evaluation.integration.candidate"


def failures(store: ArtifactStore, model: str, tests: str, rows: Path, folder: Path, seconds: float) -> Iterator[str]:
    """The tests of a project that did not pass, by name; empty where every test of every file passed.

    Settings of the environment and of the project's own `pytest.ini` do not count: nothing may leave tests out. Raises
    UntriedError if they take longer, a signal ends them, or the store does not give them the candidate.
    """
    from gatehouse.evaluation.integration import candidate

    tried, outcome = folder / "integration", folder / "outcome.json"
    files = [entry.path for entry in store.manifest(tests).files]
    for name in files:
        store.copy(tests, name, tried / name)
    settings = folder / "settings.ini"
    settings.write_text("[pytest]\naddopts =\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    environment = kept | {
        candidate.STORE: store.address,
        candidate.MODEL: model,
        candidate.ROWS: str(rows),
        candidate.OUTCOME: str(outcome),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    options = ["-p", PLUGIN, "-p", "no:cacheprovider", "-c", str(settings), "--rootdir", str(tried)]
    options += ["--continue-on-collection-errors", "-q"]
    code, line = run(["-m", "pytest", *options, str(tried)], seconds, folder, environment)
    if not outcome.exists():
        yield f"the tests ended with {code} before all had run: {line}"
        return
    ended = json.loads(outcome.read_text())
    for error in ended["errors"]:
        require_permanent(error)
    # Where values are hidden, the parameters of a test are too: the tests of one function are then one line.
    yield from dict.fromkeys(_shown(name, why) for name, why in sorted(ended["problems"].items()))
    ran = {name.partition("::")[0] for name in (*ended["passed"], *ended["problems"])}
    yield from (f"{name}: no test of it ran" for name in files if is_test_file(name) and name not in ran)
    if not ended["problems"] and (ended["exit"] or not ended["passed"]):
        yield f"pytest ended with {ended['exit']} after {len(ended['passed'])} tests"


def _shown(name: str, why: str) -> str:
    """A test and why it has not passed; the values of its parameters, and its own words, may quote a golden row."""
    shown = name.partition("[")[0] if hidden_columns() else name
    outcome, _, words = why.partition(": ")
    if outcome in ("was skipped", "is expected to fail"):
        why = f"{outcome}: {unless_hidden(words)}"
    elif outcome != "was deselected":
        why = unless_hidden(why)
    return f"{shown or 'collection'}: {why}"


def is_test_file(path: str) -> bool:
    """Whether pytest looks for tests in a file of this path."""
    name = path.rpartition("/")[2]
    return name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))
